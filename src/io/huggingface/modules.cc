#include "io/huggingface/modules.h"

#include <algorithm>
#include <initializer_list>

namespace ingot {
namespace {

using Names = std::initializer_list<std::string_view>;

constexpr int kMaxTokens = 1 << 24;

bool contains(Names names, std::string_view name) { return std::ranges::find(names, name) != names.end(); }

void refuse_other_keys(const Json& object, Names known) {
  for (const auto& [key, value] : object.members())
    if (!contains(known, key)) throw value.error("is not known: it may change the result");
}

void expect(const Json& object, const char* key, Names known) {
  const auto value = object.find(key);
  if (value && !contains(known, value->string()))
    throw value->error("'{}' is not supported: {} is", printable(value->string(), 64),
                       fmt::join(known.begin(), known.end(), " or "));
}

// ---- pooling

struct Mode {
  const char* name;
  const char* key;  // a bool in files older than sentence-transformers 5; newer files have pooling_mode
};
constexpr Mode kModes[] = {
    {"cls", "pooling_mode_cls_token"},
    {"mean", "pooling_mode_mean_tokens"},
    {"max", "pooling_mode_max_tokens"},
    {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens"},
    {"weightedmean", "pooling_mode_weightedmean_tokens"},
    {"lasttoken", "pooling_mode_lasttoken"},
};

std::string names() {
  std::string list;
  for (const Mode& mode : kModes) list += (list.empty() ? "" : ", ") + std::string(mode.name);
  return list;
}

std::string pooling_mode(const Json& root) {
  const auto named = root.find("pooling_mode");
  std::optional<std::string> found;
  for (const Mode& mode : kModes) {
    const auto flag = root.find(mode.key);
    const bool chosen = named ? named->string() == mode.name : flag && flag->boolean();
    if (chosen && found) throw flag->error("pooling by both {} and {} is not supported: choose one", *found, mode.name);
    if (chosen) found = mode.name;
  }
  if (!found && named)
    throw named->error("pooling '{}' is not known: expected one of {}", printable(named->string(), 64), names());
  if (!found) throw root.error("no pooling mode is chosen: expected one of {}", names());
  return *found;
}

void read_pooling(const Json& root, HfModules& modules) {
  modules.pooling = pooling_mode(root);
  if (const auto includes = root.find("include_prompt")) modules.pools_prompt = includes->boolean();
}

// ---- modules.json

// "Pooling" from "sentence_transformers.models.Pooling" or from the longer names of later versions.
std::string_view kind_of(const Json& module) {
  const std::string_view type = module.at("type").string(), kind = type.substr(type.rfind('.') + 1);
  if (!type.starts_with("sentence_transformers.") ||
      !contains({"Transformer", "Pooling", "Dense", "Normalize", "LogitScore"}, kind))
    throw module.at("type").error(
        "the module '{}' is not supported: Transformer, Pooling, Dense, Normalize and LogitScore are",
        printable(type, 64));
  return kind;
}

void read_module(const HfDirectory& whole, const Json& module, HfModules& out) {
  const std::string_view kind = kind_of(module);
  const bool begins = !out.pooling && !out.logit_score;
  if (kind == "Pooling" && begins) {
    read_pooling(whole.document((hf_module_folder(module) + "/config.json").c_str()).root(), out);
  } else if (kind == "LogitScore" && begins) {
    out.logit_score = hf_module_folder(module);
  } else if (kind == "Dense" && out.pooling) {
    out.after.push_back({HfModules::Step::Kind::kDense, hf_module_folder(module)});
  } else if (kind == "Normalize" && out.pooling) {
    const auto config = whole.find_document((hf_module_folder(module) + "/config.json").c_str());
    for (const char* key : {"module_input_name", "module_output_name"})
      if (config) expect(config->root(), key, {"sentence_embedding"});
    out.after.push_back({HfModules::Step::Kind::kNormalize, {}});
  } else {
    throw module.at("type").error("'{}' is not supported at this place: the order is Transformer, Pooling, then others",
                                  kind);
  }
}

// ---- sentence_bert_config.json

// Checks the model's input modalities. A model that answers with tokens may also read messages.
void check_modalities(const Json& config, bool asks) {
  const auto modalities = config.find("modality_config");
  if (!modalities) return;
  for (const auto& [name, value] : modalities->members()) {
    if (name != "text" && !(name == "message" && asks))
      throw value.error("reading '{}' is not supported: text is", printable(name, 64));
    expect(value, "method", {"forward"});
    expect(value, "method_output_name", {"last_hidden_state", "logits"});
  }
}

void check_options(const Json& config, bool asks) {
  refuse_other_keys(config, {"max_seq_length", "do_lower_case", "transformer_task", "modality_config", "backend",
                             "module_output_name", "processing_kwargs", "unpad_inputs", "query_length",
                             "document_length", "query_expansion", "tokenizer_name_or_path", "model_args",
                             "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs"});
  expect(config, "transformer_task", {"feature-extraction", "sequence-classification", "text-generation"});
  expect(config, "module_output_name", {"token_embeddings", "scores", "causal_logits"});
  check_modalities(config, asks);
  for (const char* key : {"query_length", "document_length", "query_expansion", "tokenizer_name_or_path"})
    if (const auto value = config.find(key)) throw value->error("is not supported");
  for (const char* key : {"model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args",
                          "config_kwargs", "processing_kwargs"})
    if (const auto value = config.find(key))  // allowed: keys that change at most the precision of the result
      refuse_other_keys(*value, {"trust_remote_code", "torch_dtype", "dtype", "attn_implementation",
                                 "add_pooling_layer", "use_cache", "use_fast", "padding_side"});
}

}  // namespace

HfModules read_hf_modules(const HfDirectory& directory) {
  HfModules out;
  const HfDirectory whole = directory.whole();
  const auto document = whole.find_document("modules.json");
  if (!document) return out;
  const std::vector<Json> modules = document->root().elements();
  for (size_t i = 0; i < modules.size(); ++i) {
    const bool is_model = kind_of(modules[i]) == "Transformer";
    if (is_model != (i == 0)) throw modules[i].error("a Transformer is supported as the first module, and only there");
    if (!is_model) read_module(whole, modules[i], out);
  }
  return out;
}

HfTextOptions read_hf_text_options(const HfDirectory& directory) {
  HfTextOptions out;
  const bool is_used = directory.whole().has("modules.json");  // else sentence-transformers ignores it
  for (const char* name : kHfTextOptionFiles) {
    const auto document = directory.find_document(name);
    if (!document || !is_used) continue;
    const Json config = document->root();
    check_options(config, read_hf_modules(directory).logit_score.has_value());
    if (const auto length = config.find("max_seq_length"))
      out.max_tokens = static_cast<int>(length->integer(1, kMaxTokens));
    if (const auto lower = config.find("do_lower_case")) out.lower_case = lower->boolean();
    break;
  }
  if (out.max_tokens) return out;
  // A very large number means that there is no limit.
  if (const auto document = directory.find_document("tokenizer_config.json"))
    if (const auto length = document->root().find("model_max_length"); length && length->number() < kMaxTokens)
      out.max_tokens = static_cast<int>(length->integer(1, kMaxTokens));
  return out;
}

}  // namespace ingot
