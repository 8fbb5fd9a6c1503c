#include "model/encoder_export.h"

#include <numeric>

#include "base/error.h"
#include "base/log.h"
#include "io/huggingface/modules.h"
#include "model/embedder.h"
#include "model/encoder_weights.h"
#include "model/gguf_keys.h"

namespace ingot {
namespace {

constexpr const char* kInstead = "run the directory as it is";

// Rows of a tensor of the directory, under GGUF's name.
ExportTensor exported(std::shared_ptr<WeightSource> source, const std::string& stored, const std::string& name,
                      const HostTensor& host, bool is_vector, int64_t first_row, int64_t n_rows) {
  const auto type = info(host.format).ggml_type;
  ExportTensor tensor{.name = name,
                      .shape = {static_cast<uint64_t>(host.n_in)},
                      .ggml_type = type.value_or(0),
                      .format = host.format,
                      .is_gguf_format = type.has_value(),
                      .n_bytes = static_cast<uint64_t>(n_rows) * row_bytes(host.format, host.n_in)};
  if (!is_vector) tensor.shape.push_back(static_cast<uint64_t>(n_rows));
  tensor.open = [source, stored, first_row, n_rows] {
    HostTensor again;
    CHECK(source->find(stored, -1, -1, again));
    again.n_out = n_rows;
    again.data += first_row * static_cast<int64_t>(row_bytes(again.format, again.n_in));
    return again;
  };
  tensor.close = [source](const HostTensor& opened) { source->release(opened); };
  return tensor;
}

// A tensor of numbers that are in memory.
ExportTensor computed(const std::string& name, std::vector<uint64_t> shape, std::vector<float> values) {
  const auto kept = std::make_shared<const std::vector<float>>(std::move(values));
  const auto n_in = static_cast<int64_t>(shape[0]), n_rows = static_cast<int64_t>(kept->size()) / n_in;
  return {.name = name,
          .shape = std::move(shape),
          .ggml_type = 0,
          .format = Format::F32,
          .n_bytes = kept->size() * sizeof(float),
          .open =
              [kept, n_in, n_rows] {
                return HostTensor{Format::F32, n_rows, n_in, reinterpret_cast<const uint8_t*>(kept->data())};
              },
          .close = [](const HostTensor&) {}};
}

void add_layer(const std::string& name, const HeadLayer& layer, std::vector<ExportTensor>& tensors) {
  std::vector<float> rows(layer.weight.size());  // [n_out, n_in], the order in files
  for (int out = 0; out < layer.n_out; ++out)
    for (int in = 0; in < layer.n_in; ++in)
      rows[static_cast<size_t>(out) * layer.n_in + in] = layer.weight[static_cast<size_t>(in) * layer.n_out + out];
  tensors.push_back(computed(name + ".weight", {static_cast<uint64_t>(layer.n_in), static_cast<uint64_t>(layer.n_out)},
                             std::move(rows)));
  if (!layer.bias.empty()) tensors.push_back(computed(name + ".bias", {layer.bias.size()}, layer.bias));
}

// ---- the encoder's own tensors

// one_type: this model's tokenizer gives the second text of a pair type 0. Readers of GGUF give it type 1 if the file
// has that type, so the export leaves type 1 out.
std::vector<ExportTensor> tensors_of(const std::shared_ptr<WeightSource>& source, const EncoderConfig& c,
                                     bool one_type) {
  std::vector<ExportTensor> tensors;
  for (const EncoderTensor& row : encoder_tensors()) {
    const bool is_norm = std::string_view(row.gguf).ends_with("_norm"),
               is_position = std::string_view(row.gguf) == "position_embd",
               is_type = std::string_view(row.gguf) == "token_types";
    for (int layer = 0; layer < (row.per_layer() ? c.n_layers : 1); ++layer)
      for (const auto& [suffix, old] : {std::pair{".weight", ".gamma"}, std::pair{".bias", ".beta"}}) {
        HostTensor host;
        auto stored = find_encoder_tensor(*source, row, layer, suffix, host);
        if (!stored && is_norm) stored = find_encoder_tensor(*source, row, layer, old, host);
        if (!stored) continue;
        const std::string name = fmt::format(fmt::runtime(row.gguf), layer) + suffix;
        const int64_t first = is_position ? c.first_position : 0;  // the rows before are for padding
        const int64_t n_rows = is_type && one_type ? 1 : host.n_out - first;
        tensors.push_back(
            exported(source, *stored, name, host, is_norm || suffix == std::string_view(".bias"), first, n_rows));
      }
  }
  return tensors;
}

// ---- keys

// GGUF can only say that every n-th layer, starting with the first, is global.
int window_period(const Checkpoint& checkpoint, const EncoderConfig& c) {
  for (int n = 1; n <= c.n_layers; ++n) {
    bool fits = true;
    for (int i = 0; i < c.n_layers; ++i) fits = fits && c.is_local[i] == (i % n != 0);
    if (fits) return n;
  }
  throw Error("{}: GGUF cannot say which layers of this model have a window: {}", printable(checkpoint.path()),
              kInstead);
}

void write_encoder_keys(const Checkpoint& checkpoint, const EncoderConfig& c, GgufWriter& writer) {
  const std::string arch = c.arch->gguf_name, prefix = arch + ".";
  auto count = [&](const char* key, int value) { writer.set(prefix + key, static_cast<uint32_t>(value)); };
  writer.set("general.architecture", arch);
  writer.set("general.type", std::string("model"));
  writer.set("general.name", c.name);
  count("block_count", c.n_layers);
  count("context_length", c.n_ctx);
  count("embedding_length", c.dim);
  count("feed_forward_length", c.ffn_dim);
  count("attention.head_count", c.n_heads);
  writer.set(prefix + "attention.layer_norm_epsilon", c.norm_eps);
  writer.set(prefix + "attention.causal", false);
  if (c.arch->rope) writer.set(prefix + "rope.freq_base", c.rope_theta);
  if (c.window > 0) {
    writer.set(prefix + "rope.freq_base_swa", c.local_rope_theta);
    count("attention.sliding_window", 2 * (c.window - 1));
    count("attention.sliding_window_pattern", window_period(checkpoint, c));
  }
  count("vocab_size", c.n_vocab);
  write_pooling_keys(checkpoint, arch, writer);
  write_tokenizer_keys(checkpoint, c.n_vocab, writer);
}

// Refuses a model that differs from what readers of the file assume.
void check_sayable(const Checkpoint& checkpoint, const EncoderConfig& c) {
  if (c.activation != c.arch->activation)
    throw Error("{}: GGUF cannot say that a model of type '{}' has another activation: {}",
                printable(checkpoint.path()), c.arch->hf_name, kInstead);
}

std::vector<ExportTensor> classifier_export(const Checkpoint& checkpoint, WeightSource& source, int dim,
                                            bool is_encoder) {
  std::vector<ExportTensor> tensors;
  const Classifier classifier = read_classifier(checkpoint, source, dim, is_encoder);
  size_t n_first = 0;
  if (!classifier.prompt) checkpoint.tokenizer()->encode_pair("", "", 8, n_first);  // throws for other forms of pairs
  const std::vector<HeadLayer>& layers = classifier.head.layers();
  const bool normed = layers.size() == 2 && !layers[0].norm.empty();
  if (classifier.pooling != (normed ? "mean" : is_encoder ? "cls" : "last"))
    throw Error("{}: GGUF cannot say that the classifier pools by '{}': {}", printable(checkpoint.path()),
                classifier.pooling, kInstead);
  if (layers.size() == 2 && layers[0].activation != (normed ? HeadLayer::Act::kGelu : HeadLayer::Act::kTanh))
    throw Error("{}: GGUF cannot say which activation the classifier has: {}", printable(checkpoint.path()), kInstead);
  if (classifier.raw)
    log_warn(
        "{}: the model's makers take its scores as they are, which GGUF cannot say: those of the file will be from 0 "
        "to 1, in the same order",
        printable(checkpoint.path()));
  if (layers.size() == 2) add_layer("cls", layers[0], tensors);
  if (normed) tensors.push_back(computed("cls.norm.weight", {layers[0].norm.size()}, layers[0].norm));
  if (normed && !layers[0].norm_bias.empty())
    tensors.push_back(computed("cls.norm.bias", {layers[0].norm_bias.size()}, layers[0].norm_bias));
  HeadLayer out = layers.back();
  if (classifier.prompt) {  // readers take the softmax of two classes: the class "no" gets 0
    out.n_out = 2;
    out.weight.clear();
    for (const float w : layers.back().weight) out.weight.insert(out.weight.end(), {w, 0.0f});
  }
  add_layer("cls.output", out, tensors);
  return tensors;
}

std::vector<ExportTensor> dense_export(const Checkpoint& checkpoint, WeightSource& source) {
  std::vector<ExportTensor> tensors;
  const EmbedHead head = read_dense_head(checkpoint, source, 0);
  if (head.layers().size() > 2)
    throw Error("{}: GGUF has names for two dense layers, and this model has {}", printable(checkpoint.path()),
                head.layers().size());
  int number = 2;
  for (const HeadLayer& layer : head.layers()) {
    if (layer.activation != HeadLayer::Act::kNone || !layer.bias.empty() || layer.takes_unit)
      throw Error(
          "{}: GGUF cannot say that a dense layer has a bias or an activation, or takes vectors of length 1: {}",
          printable(checkpoint.path()), kInstead);
    add_layer(fmt::format("dense_{}", number++), layer, tensors);
  }
  return tensors;
}

// For a model that answers in words: the prompt, and which of its two classes is which.
void write_asked_keys(const Checkpoint& checkpoint, const std::string& arch, GgufWriter& writer) {
  const auto prompt = classifier_prompt(checkpoint);
  if (!prompt) return;
  writer.set(arch + ".classifier.output_labels", std::vector<std::string>{"yes", "no"});
  writer.set("tokenizer.chat_template.rerank", *prompt);
}

}  // namespace

std::vector<ExportTensor> head_export(const Checkpoint& checkpoint, WeightSource& source, int dim, bool is_encoder) {
  return has_classifier(checkpoint) ? classifier_export(checkpoint, source, dim, is_encoder)
                                    : dense_export(checkpoint, source);
}

void write_pooling_keys(const Checkpoint& checkpoint, const std::string& arch, GgufWriter& writer) {
  constexpr std::string_view kNames[] = {"none", "mean", "cls", "last", "rank"};
  const auto pooling = read_embed_facts(checkpoint).pooling;
  if (!pooling) return;
  writer.set(arch + ".pooling_type",
             static_cast<uint32_t>(std::find(std::begin(kNames), std::end(kNames), *pooling) - std::begin(kNames)));
  const bool lowers = checkpoint.directory() != nullptr && read_hf_text_options(*checkpoint.directory()).lower_case;
  if (lowers && checkpoint.tokenizer()->model() != kWordPieceModel)
    throw Error("{}: GGUF cannot say that texts become lower case: {}", printable(checkpoint.path()), kInstead);
  if (*pooling == "rank") return write_asked_keys(checkpoint, arch, writer);
  for (const ExportTensor& tensor : dense_export(checkpoint, *checkpoint.weights())) {
    const std::string layer = tensor.name.substr(0, tensor.name.find('.'));
    writer.set(fmt::format("{}.{}_feat_in", arch, layer), static_cast<uint32_t>(tensor.shape[0]));
    writer.set(fmt::format("{}.{}_feat_out", arch, layer), static_cast<uint32_t>(tensor.shape[1]));
  }
}

GgufExport encoder_export(std::shared_ptr<const Checkpoint> checkpoint, const EncoderConfig& config) {
  check_sayable(*checkpoint, config);
  const std::shared_ptr<WeightSource> source = checkpoint->weights();
  GgufExport out{.source = source->name()};
  out.tensors = tensors_of(source, config, has_classifier(*checkpoint) && !checkpoint->tokenizer()->marks_second());
  for (ExportTensor& tensor : head_export(*checkpoint, *source, config.dim, true))
    out.tensors.push_back(std::move(tensor));
  for (const std::string& name : source->unused()) log_warn("{}: tensor '{}' is not used", out.source, printable(name));
  out.mix_model = {.n_layers = config.n_layers, .heads_per_kv = 1, .tied = true, .is_large = false};
  out.write_metadata = [checkpoint, config](GgufWriter& writer) { write_encoder_keys(*checkpoint, config, writer); };
  return out;
}

}  // namespace ingot
