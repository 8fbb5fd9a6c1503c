#include "model/vectors/classifier.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "io/gguf/gguf.h"
#include "io/huggingface/modules.h"
#include "quant/format.h"
#include "text/jinja/template.h"

namespace ingot {
namespace {

using Act = HeadLayer::Act;

// The layers of a classifier: `dense` with an activation and possibly a norm, then `out`.
struct Layout {
  const char* dense;  // null: the classifier is `out` only
  Act activation;
  const char* norm;
  const char* out;
};
constexpr Layout kHfLayouts[] = {
    {"classifier.dense", Act::kTanh, nullptr, "classifier.out_proj"},  // RoBERTa
    {"head.dense", Act::kGelu, "head.norm", "classifier"},             // ModernBERT
    {"bert.pooler.dense", Act::kTanh, nullptr, "classifier"},
    {"pooler.dense", Act::kTanh, nullptr, "classifier"},
    {nullptr, Act::kNone, nullptr, "score"},  // decoders
};
constexpr Layout kGgufLayouts[] = {
    {"cls", Act::kGelu, "cls.norm", "cls.output"},  // ModernBERT, the only model with a norm
    {"cls", Act::kTanh, nullptr, "cls.output"},
    {nullptr, Act::kNone, nullptr, "cls.output"},
};

bool has_tensor(WeightSource& source, const char* name) {
  HostTensor host;
  return name == nullptr || source.find(std::string(name) + ".weight", -1, -1, host);
}

const Layout& find_layout(WeightSource& source) {
  const std::span<const Layout> layouts =
      source.dialect() == Dialect::kGguf ? std::span<const Layout>(kGgufLayouts) : kHfLayouts;
  for (const Layout& layout : layouts)
    if (has_tensor(source, layout.dense) && has_tensor(source, layout.norm) && has_tensor(source, layout.out))
      return layout;
  throw Error("{}: this model has no known classifier, so it cannot rank: it embeds or writes text", source.name());
}

Act classifier_activation(const Json& config, Act fallback) {
  const auto value = config.find("classifier_activation");
  if (!value) return fallback;
  if (value->string() == "gelu") return Act::kGelu;
  if (value->string() == "tanh") return Act::kTanh;
  if (value->string() == "silu") return Act::kSilu;
  if (value->string() == "relu") return Act::kRelu;
  throw value->error("'{}' is not supported: gelu, tanh, silu and relu are", printable(value->string(), 64));
}

// ---- decoders that answer in words, with one of two tokens: LogitScore of sentence-transformers

// The logit of yes minus the logit of no: one row of the output matrix minus another.
HeadLayer logit_score(const HfDirectory& directory, const std::string& folder, WeightSource& source, int dim) {
  const JsonDocument document = directory.whole().document((folder + "/config.json").c_str());
  HostTensor host;
  const char* names[] = {"lm_head.weight", "model.embed_tokens.weight", "embed_tokens.weight"};
  for (const char* name : names)
    if (source.find(name, -1, dim, host) && source.find(name, host.n_out, dim, host)) break;
  if (host.data == nullptr || host.n_in != dim)
    throw Error("{}: the output matrix is missing, or its width is not {}", source.name(), dim);
  auto row = [&](const Json& id) {
    std::vector<float> values(dim);
    const auto bytes = static_cast<int64_t>(row_bytes(host.format, dim));
    decode_row(host.format, host.data + id.integer(0, host.n_out - 1) * bytes, values.data(), dim);
    return values;
  };
  HeadLayer layer{.n_in = dim, .n_out = 1, .weight = row(document.root().at("true_token_id"))};
  if (const auto no = document.root().find("false_token_id")) {
    const std::vector<float> less = row(*no);
    for (int i = 0; i < dim; ++i) layer.weight[i] -= less[i];
  }
  return layer;
}

// The model's prompt: its chat template with a placeholder for each text. The model's own instruction, if any, is a
// system message.
std::string asked_prompt(const Checkpoint& checkpoint, const HfDirectory& directory) {
  using Message = nlohmann::ordered_json;
  const auto source = checkpoint.chat_template();
  if (!source)
    throw Error("{}: this model ranks by answering a prompt, so it needs a chat template, which is missing",
                printable(checkpoint.path()));
  Message messages = Message::array();
  if (const auto document = directory.whole().find_document("config_sentence_transformers.json")) {
    const auto prompts = document->root().find("prompts"), name = document->root().find("default_prompt_name");
    if (prompts && name)
      if (const auto prompt = prompts->find(name->string()))
        messages.push_back({{"role", "system"}, {"content", std::string(prompt->string())}});
  }
  for (const char* role : {"query", "document"})
    messages.push_back({{"role", role}, {"content", fmt::format("{{{}}}", role)}});
  const std::string text =
      Template::parse(*source).render({{"messages", std::move(messages)}, {"add_generation_prompt", false}});
  for (const char* place : {"{query}", "{document}"})
    if (text.find(place) == text.npos)
      throw Error("{}: the chat template leaves out the {}, so it is not a template for ranking",
                  printable(checkpoint.path()), place);
  return text;
}

// Replaces two classes, yes and no, by their difference: the sigmoid of the difference is the softmax of yes.
void difference_of_two(HeadLayer& layer) {
  std::vector<float> weight(layer.n_in);
  for (int i = 0; i < layer.n_in; ++i) weight[i] = layer.weight[2 * i] - layer.weight[2 * i + 1];
  layer.weight = std::move(weight);
  if (!layer.bias.empty()) layer.bias.assign(1, layer.bias[0] - layer.bias[1]);
  layer.n_out = 1;
}

// torch.nn.modules.linear.Identity appears in the config of models made by sentence-transformers.
bool says_identity(const Json& value) {
  const std::string_view type = value.string(), name = type.substr(type.rfind('.') + 1);
  if (name != "Identity" && name != "Sigmoid")
    throw value.error("'{}' is not supported: Sigmoid and Identity are", printable(type, 64));
  return name == "Identity";
}

bool scores_are_raw(const HfDirectory& directory, const Json& config) {
  if (const auto document = directory.whole().find_document("config_sentence_transformers.json"))
    if (const auto value = document->root().find("activation_fn")) return says_identity(*value);
  if (const auto own = config.find("sentence_transformers"))
    if (const auto value = own->find("activation_fn")) return says_identity(*value);
  if (const auto value = config.find("sbert_ce_default_activation_function")) return says_identity(*value);
  return false;
}

bool is_yes_and_no(const Gguf& file) {
  const std::string key = std::string(file.metadata().get_string("general.architecture")) + ".classifier.output_labels";
  const auto labels = file.metadata().find_strings(key);
  return labels && labels->size() == 2 && (*labels)[0] == "yes" && (*labels)[1] == "no";
}

}  // namespace

bool has_classifier(const Checkpoint& checkpoint) {
  if (const Gguf* file = checkpoint.gguf()) {
    const Metadata& metadata = file->metadata();
    const auto arch = metadata.find_string("general.architecture");
    const auto pooling = metadata.find_u32(std::string(arch.value_or("")) + ".pooling_type");
    return pooling ? *pooling == 4 : file->find("cls.output.weight") != nullptr;  // older files have no such key
  }
  const HfDirectory* directory = checkpoint.directory();
  if (directory == nullptr) return false;
  if (read_hf_modules(*directory).logit_score) return true;
  const JsonDocument document = directory->document("config.json");
  const auto architectures = document.root().find("architectures");
  const std::vector<Json> names = architectures ? architectures->elements() : std::vector<Json>{};
  return std::any_of(names.begin(), names.end(),
                     [](const Json& name) { return name.string().ends_with("ForSequenceClassification"); });
}

namespace {

// The facts that are not in the layout's row.
struct Details {
  Act activation;
  float norm_eps = 0;
  bool yes_and_no = false;
};

void read_gguf(const Gguf& file, const Layout& layout, Classifier& classifier, Details& details) {
  const Metadata& metadata = file.metadata();
  details.yes_and_no = is_yes_and_no(file);
  if (layout.norm == nullptr) return;
  classifier.pooling = "mean";  // as in llama.cpp; GGUF has no key for it
  details.norm_eps =
      metadata.get_f32(std::string(metadata.get_string("general.architecture")) + ".attention.layer_norm_epsilon");
}

void read_directory(const HfDirectory& directory, const Layout& layout, Classifier& classifier, Details& details) {
  const JsonDocument document = directory.document("config.json");
  const Json config = document.root();
  classifier.raw = scores_are_raw(directory, config);
  if (layout.norm == nullptr) return;
  details.activation = classifier_activation(config, details.activation);
  details.norm_eps = static_cast<float>(config.at("norm_eps").number());
  const auto pooling = config.find("classifier_pooling");
  if (!pooling) return;
  classifier.pooling = pooling->string();
  if (classifier.pooling != "cls" && classifier.pooling != "mean")
    throw pooling->error("'{}' is not supported: cls and mean are", printable(classifier.pooling, 64));
}

}  // namespace

std::optional<std::string> classifier_prompt(const Checkpoint& checkpoint) {
  if (const Gguf* file = checkpoint.gguf()) {
    const auto prompt = file->metadata().find_string("tokenizer.chat_template.rerank");
    return prompt ? std::optional<std::string>(*prompt) : std::nullopt;
  }
  const HfDirectory* directory = checkpoint.directory();
  const bool asks = directory != nullptr && read_hf_modules(*directory).logit_score;
  return asks ? std::optional(asked_prompt(checkpoint, *directory)) : std::nullopt;
}

std::optional<int32_t> classifier_padding(const Checkpoint& checkpoint) {
  if (const Gguf* file = checkpoint.gguf()) {
    const auto id = file->metadata().find_i64("tokenizer.ggml.padding_token_id");
    return id ? std::optional(static_cast<int32_t>(*id)) : std::nullopt;
  }
  const JsonDocument document = checkpoint.directory()->document("config.json");
  const Json config = document.root().find("text_config").value_or(document.root());
  const auto id = config.find("pad_token_id");
  const auto token = static_cast<int32_t>(id ? id->integer(-1, INT32_MAX) : -1);
  return token >= 0 ? std::optional(token) : std::nullopt;
}

Classifier read_classifier(const Checkpoint& checkpoint, WeightSource& source, int dim, bool is_encoder) {
  if (const HfDirectory* directory = checkpoint.directory())
    if (const auto folder = read_hf_modules(*directory).logit_score)
      return {.head = EmbedHead({logit_score(*directory, *folder, source, dim)}),
              .pooling = "last",
              .raw = scores_are_raw(*directory, directory->document("config.json").root()),
              .pad = std::nullopt,
              .prompt = classifier_prompt(checkpoint)};
  const Layout& layout = find_layout(source);
  Classifier classifier{.head = {},
                        .pooling = is_encoder ? "cls" : "last",
                        .raw = false,
                        .pad = std::nullopt,
                        .prompt = classifier_prompt(checkpoint)};
  Details details{.activation = layout.activation};
  if (!is_encoder && !classifier.prompt) classifier.pad = classifier_padding(checkpoint);
  if (const Gguf* file = checkpoint.gguf()) read_gguf(*file, layout, classifier, details);
  if (const HfDirectory* directory = checkpoint.directory()) read_directory(*directory, layout, classifier, details);
  std::vector<HeadLayer> layers;
  if (layout.dense != nullptr) {
    layers.push_back(read_head_layer(source, layout.dense, dim, dim, details.activation));
    if (layout.norm != nullptr) {
      layers.back().norm = read_head_vector(source, std::string(layout.norm) + ".weight", dim);
      layers.back().norm_bias = read_head_vector(source, std::string(layout.norm) + ".bias", dim);
      layers.back().norm_eps = details.norm_eps;
    }
  } else if (is_encoder) {
    log_warn(
        "{}: the classifier has no dense layer, which some converters drop: scores may differ from those of the "
        "original model",
        source.name());
  }
  layers.push_back(read_head_layer(source, layout.out, dim, -1, Act::kNone));
  if (details.yes_and_no && layers.back().n_out == 2) difference_of_two(layers.back());
  if (layers.back().n_out != 1)
    throw Error(
        "{}: the classifier has {} classes: only a model with a single score can rank. To embed with this model, "
        "choose a pooling",
        source.name(), layers.back().n_out);
  classifier.head = EmbedHead(std::move(layers));
  return classifier;
}

}  // namespace ingot
