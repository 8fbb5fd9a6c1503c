#include "io/huggingface/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace ingot {
namespace {

constexpr int64_t kMaxLayers = 1024, kMaxDim = 1 << 20, kMaxHeads = 4096, kMaxHeadDim = 1024, kMaxFfn = 1 << 24;
constexpr int64_t kMaxVocab = 1 << 24, kMaxContext = 1 << 30, kMaxId = INT32_MAX, kMaxExperts = 4096;

// The keys that are read for all families.
constexpr std::string_view kOfAllFamilies[] = {
    "attention_bias", "head_dim", "hidden_act", "hidden_size", "intermediate_size", "is_causal",
    "max_position_embeddings", "n_routed_experts", "num_attention_heads", "num_experts", "num_hidden_layers",
    "num_key_value_heads", "num_local_experts", "per_layer_config", "original_max_position_embeddings",
    "rms_norm_eps", "rope_parameters", "rope_scaling", "rope_theta", "tie_word_embeddings", "vocab_size"};

// Other names of some keys.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"num_hidden_layers", "n_layer"},
    {"hidden_size", "n_embd"},
    {"num_attention_heads", "n_head"},
    {"intermediate_size", "n_inner"},
    {"max_position_embeddings", "n_positions"},
    {"hidden_act", "activation_function"},
    {"num_experts", "moe_num_experts"},
    {"num_experts_per_tok", "moe_k"},
    {"n_shared_experts", "moe_num_shared_experts"},
    {"n_shared_experts", "num_shared_experts"},
    {"first_k_dense_replace", "moe_layer_start_index"},
    {"decoder_sparse_step", "moe_layer_interval"},
    {"decoder_sparse_step", "interleave_moe_layer_step"},
    {"routed_scaling_factor", "moe_routed_scaling_factor"},
    {"rms_norm_eps", "norm_epsilon"},
    {"rms_norm_eps", "layer_norm_eps"},
    {"rms_norm_eps", "layer_norm_epsilon"},
    {"rms_norm_eps", "norm_eps"},
    {"rope_theta", "global_rope_theta"},
    {"rope_theta", "rotary_emb_base"},
    {"rope_local_base_freq", "local_rope_theta"},
    {"partial_rotary_factor", "rotary_emb_fraction"},
    {"sliding_window", "local_attention"},
    {"sliding_window_pattern", "global_attn_every_n_layers"},
    {"layer_types", "layers_block_type"},
    {"head_dim", "attention_head_dim"},
    {"max_position_embeddings", "model_max_length"},
    {"norm_topk_prob", "moe_renormalize"},
    {"n_group", "num_expert_group"},
    {"sliding_window", "attention_window_size"},
    {"final_logit_softcapping", "logits_soft_cap"},
    {"num_experts_per_tok", "num_experts_per_token"},
    {"hidden_act", "mlp_hidden_act"},
    {"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"},
    {"shared_expert_intermediate_size", "shared_intermediate_size"},
};

// Names that count more than the usual names, if a file has both.
constexpr std::pair<std::string_view, std::string_view> kFirstNames[] = {{"intermediate_size", "block_ff_dim"},
                                                                         {"tie_word_embeddings", "tie_embedding"}};

// Variants that would change the results and are not implemented.
constexpr const char* kRefusedFlags[] = {"is_decoder", "add_cross_attention", "prenorm", "use_rms_norm",
                                         "rotary_emb_interleaved"};

// The object of a file, and an object with the family's keys and their defaults. A null in the file means no value,
// even if there is a default. As in transformers, keys that the family does not use are ignored. Without `defaults`,
// all keys are read. A key is found by any of its names.
struct Keys {
  Json own;
  std::optional<Json> defaults;

  bool counts(std::string_view key) const {
    return !defaults || defaults->has(key) || std::ranges::count(kOfAllFamilies, key) > 0;
  }
  std::vector<std::string_view> names_of(std::string_view key) const {
    std::vector<std::string_view> names;
    for (const auto& [usual, first] : kFirstNames)
      if (usual == key) names.push_back(first);
    names.push_back(key);
    for (const auto& [usual, other] : kOtherNames)
      if (usual == key) names.push_back(other);
    std::erase_if(names, [&](std::string_view name) { return !counts(name); });
    return names;
  }
  std::optional<Json> find(std::string_view key) const {
    const std::vector<std::string_view> names = names_of(key);
    for (const std::string_view name : names)
      if (own.has(name)) return own.find(name);
    for (const std::string_view name : names)
      if (defaults && defaults->has(name)) return defaults->find(name);
    return std::nullopt;
  }
  Json at(std::string_view key) const {
    const auto value = find(key);
    return value ? *value : own.at(key);
  }
};

template <class Object>
int integer_or(const Object& object, const char* key, int64_t fallback, int64_t low, int64_t high) {
  const auto value = object.find(key);
  return static_cast<int>(value ? value->integer(low, high) : fallback);
}

float positive(const Json& value) {
  const float number = static_cast<float>(value.number());
  if (!(number > 0) || !std::isfinite(number))
    throw value.error("{} is out of range: expected a positive number", value.number());
  return number;
}

// Newer files of transformers write infinity as an object.
float number_or_infinity(const Json& value) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (value.is_object() && value.at("__float__").string() == "Infinity") return kInfinity;
  const double number = value.number();
  return number > std::numeric_limits<float>::max() ? kInfinity : static_cast<float>(number);
}

template <class Object>
std::optional<float> find_positive(const Object& object, const char* key) {
  const auto value = object.find(key);
  return value ? std::optional(positive(*value)) : std::nullopt;
}

template <class Object>
std::string string_or(const Object& object, const char* key, const char* fallback) {
  const auto value = object.find(key);
  return std::string(value ? value->string() : fallback);
}

// A null counts as false.
std::optional<bool> find_flag(const Keys& keys, const char* key) {
  if (const auto value = keys.find(key)) return value->boolean();
  const auto is_stated = [&](std::string_view name) { return keys.own.has(name); };
  return std::ranges::any_of(keys.names_of(key), is_stated) ? std::optional(false) : std::nullopt;
}

std::vector<float> factors(const Json& rope, const char* key) {
  std::vector<float> values;
  for (const Json& value : rope.at(key).elements()) values.push_back(positive(value));
  return values;
}

void read_rope_kind(const Json& rope, HfRope& out, int n_ctx);

// Rope parameters for each type of layer. Layers with a window may differ only in the base.
void read_rope_of_layers(const Json& rope, HfRope& out, int n_ctx) {
  for (const auto& [type, value] : rope.members()) {
    if (type == "full_attention") {
      read_rope_kind(value, out, n_ctx);
    } else if (type == "sliding_attention" && string_or(value, "rope_type", "default") == "default") {
      out.local_theta = find_positive(value, "rope_theta").value_or(0.0f);
      out.local_partial = find_positive(value, "partial_rotary_factor").value_or(1.0f);
    } else {
      throw value.error("rope of type '{}' is not supported for {}",
                        printable(string_or(value, "rope_type", "default"), 64), printable(type, 64));
    }
  }
}

void read_rope_kind(const Json& rope, HfRope& out, int n_ctx) {
  if (rope.find("full_attention") || rope.find("sliding_attention")) return read_rope_of_layers(rope, out, n_ctx);
  out.kind = string_or(rope, rope.find("rope_type") ? "rope_type" : "type", "default");
  out.theta = find_positive(rope, "rope_theta").value_or(out.theta);
  out.is_off = rope.has("rope_theta") && !rope.find("rope_theta");
  out.partial_rotary_factor = find_positive(rope, "partial_rotary_factor").value_or(out.partial_rotary_factor);
  out.factor = find_positive(rope, "factor");
  out.low_freq_factor = find_positive(rope, "low_freq_factor");
  out.high_freq_factor = find_positive(rope, "high_freq_factor");
  out.beta_fast = find_positive(rope, "beta_fast");
  out.beta_slow = find_positive(rope, "beta_slow");
  out.attention_factor = find_positive(rope, "attention_factor");
  out.mscale = find_positive(rope, "mscale");
  out.mscale_all_dim = find_positive(rope, "mscale_all_dim");
  out.query_beta = find_positive(rope, "llama_4_scaling_beta").value_or(0.0f);
  out.alpha = find_positive(rope, "alpha").value_or(0.0f);
  out.sections.clear();
  if (const auto sections = rope.find("mrope_section"))
    for (const Json& n : sections->elements()) out.sections.push_back(static_cast<int>(n.integer(0, kMaxHeadDim)));
  out.original_context = integer_or(rope, "original_max_position_embeddings", n_ctx, 1, kMaxContext);
  if (const auto truncate = rope.find("truncate")) out.truncate = truncate->boolean();
  if (out.kind == "su") out.kind = "longrope";
  if (out.kind == "longrope")
    out.short_factor = factors(rope, "short_factor"), out.long_factor = factors(rope, "long_factor");
  const bool needs_factor = out.kind == "linear" || out.kind == "llama3" || (out.kind == "dynamic" && out.alpha == 0);
  if (needs_factor && !out.factor) throw rope.error("'factor' is missing");
  if (out.kind == "llama3")
    for (const char* key : {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) rope.at(key);
}

HfRope read_rope(const Keys& text, int n_ctx, int head_dim) {
  HfRope rope;
  if (const auto rotated = text.find("rotary_dim"))  // MiniMax M2's key for the rotated part of a head
    rope.partial_rotary_factor = static_cast<float>(rotated->integer(2, head_dim)) / static_cast<float>(head_dim);
  rope.original_context = integer_or(text, "original_max_position_embeddings", n_ctx, 1, kMaxContext);
  rope.theta = find_positive(text, "rope_theta").value_or(rope.theta);
  rope.partial_rotary_factor = find_positive(text, "partial_rotary_factor").value_or(rope.partial_rotary_factor);
  rope.local_theta = find_positive(text, "rope_local_base_freq").value_or(0.0f);
  const float partial = rope.partial_rotary_factor;
  const bool is_silent = !text.own.find("rope_scaling") && !text.own.find("rope_parameters");
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (const auto value = is_silent && text.defaults ? text.defaults->find(key) : text.own.find(key))
      read_rope_kind(*value, rope, rope.original_context);
  if (!text.counts("partial_rotary_factor")) rope.partial_rotary_factor = partial;
  rope.original_context = integer_or(text, "original_max_position_embeddings", rope.original_context, 1, kMaxContext);
  return rope;
}

// Kimi's lists count layers from 1.
void read_kda_layers(const Json& lists, int n_layers, HfConfig& c) {
  c.layer_types.assign(static_cast<size_t>(n_layers), "linear_attention");
  for (const Json& layer : lists.at("full_attn_layers").elements())
    c.layer_types[static_cast<size_t>(layer.integer(1, n_layers) - 1)] = "full_attention";
}

// The type of each layer: a list, or a string with a letter for each.
void read_layer_types(const Keys& text, HfConfig& c) {
  constexpr std::pair<char, const char*> kLetters[] = {
      {'M', "linear_attention"}, {'*', "full_attention"}, {'-', "mlp"}, {'E', "moe"}};
  if (const auto types = text.find("layer_types")) {
    for (const Json& type : types->elements()) c.layer_types.emplace_back(type.string());
  } else if (const auto pattern = text.find("hybrid_override_pattern")) {
    for (const char letter : pattern->string()) {
      const auto known = std::ranges::find(kLetters, letter, &std::pair<char, const char*>::first);
      if (known == std::end(kLetters))
        throw pattern->error(
            "'{}' of layer {} is not supported: supported are M (Mamba-2), * (attention), - (feed-forward) and E "
            "(experts)",
            printable(std::string_view(&letter, 1)), c.layer_types.size());
      c.layer_types.emplace_back(known->second);
    }
  } else if (const auto kda = text.find("linear_attn_config")) {
    read_kda_layers(*kda, static_cast<int>(text.at("num_hidden_layers").integer(1, kMaxLayers)), c);
  }
  if (c.layer_types.size() > static_cast<size_t>(kMaxLayers))
    throw Error("{}: the types of {} layers are listed: at most {} are supported", printable(c.source),
                c.layer_types.size(), kMaxLayers);
}

void read_window(const Keys& text, HfConfig& c) {
  c.sliding_window = integer_or(text, "sliding_window", 0, 0, kMaxContext);
  c.use_sliding_window = find_flag(text, "use_sliding_window").value_or(false);
  c.attention_bias = find_flag(text, "attention_bias").value_or(false);
  // Gemma 4's files say for which tokens: "vision" (text is causal), or "all".
  if (const auto who = text.find("use_bidirectional_attention"))
    c.bidirectional = who->is_string() ? who->string() != "vision" : who->boolean();
  if (const auto causal = text.find("is_causal")) c.causal = causal->boolean();
  if (const auto layers = text.find("max_window_layers"))
    c.max_window_layers = static_cast<int>(layers->integer(0, kMaxLayers));
  for (const char* key : {"sliding_window_pattern", "_sliding_window_pattern"})
    // If layer_types exists, the value may be a string such as "LLLG".
    if (c.layer_types.empty())
      c.sliding_window_pattern = integer_or(text, key, c.sliding_window_pattern, 0, kMaxLayers);
}

// Differences of single layers: {"5": {"head_dim": 512}}.
void read_differences(const Keys& text, HfConfig& c) {
  constexpr std::pair<std::string_view, int HfLayer::*> kKeys[] = {{"num_attention_heads", &HfLayer::n_heads},
                                                                   {"num_key_value_heads", &HfLayer::n_kv_heads},
                                                                   {"head_dim", &HfLayer::head_dim},
                                                                   {"intermediate_size", &HfLayer::ffn_dim}};
  if (const auto heads = text.find("num_attention_heads_per_layer")) {
    if (!c.of_layers.empty()) throw heads->error("beside a list of intermediate_size is not supported");
    for (const Json& n : heads->elements())
      c.of_layers.push_back({.n_heads = static_cast<int>(n.integer(1, kMaxHeads))});
    if (c.of_layers.size() != static_cast<size_t>(c.n_layers))
      throw heads->error("{} elements for {} layers", c.of_layers.size(), c.n_layers);
  }
  const auto list = text.find("per_layer_config");
  if (!list) return;
  c.of_layers.resize(static_cast<size_t>(c.n_layers));
  for (const auto& [name, layer] : list->members()) {
    int number = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error != std::errc() || end != name.data() + name.size() || number < 0 || number >= c.n_layers)
      throw list->error("'{}' is no layer: expected a number below {}", printable(name, 64), c.n_layers);
    for (const auto& [key, value] : layer.members()) {
      const auto known = std::ranges::find(kKeys, key, &std::pair<std::string_view, int HfLayer::*>::first);
      if (known == std::end(kKeys)) throw value.error("layers that differ in it are not supported");
      const bool is_ffn = known->second == &HfLayer::ffn_dim, is_dim = known->second == &HfLayer::head_dim;
      c.of_layers[static_cast<size_t>(number)].*known->second =
          static_cast<int>(value.integer(is_dim ? 2 : 1, is_ffn ? kMaxFfn : is_dim ? kMaxHeadDim : kMaxHeads));
    }
  }
}

void read_layers_without_rope(const Keys& text, HfConfig& c) {
  c.no_rope_interval = integer_or(text, "no_rope_layer_interval", 0, 0, kMaxLayers);
  const auto list = text.find("no_rope_layers");
  if (!list) return;
  for (const Json& has : list->elements()) c.layer_has_rope.push_back(has.integer(0, 1) == 1);
  if (c.layer_has_rope.size() != static_cast<size_t>(c.n_layers))
    throw list->error("{} elements for {} layers", c.layer_has_rope.size(), c.n_layers);
}

struct IntKey {
  const char* key;
  int HfConfig::*field;
  int64_t low, high;
};
constexpr IntKey kBlockKeys[] = {
    {"type_vocab_size", &HfConfig::n_token_types, 0, kMaxVocab},
    {"pad_token_id", &HfConfig::pad_id, -1, kMaxVocab},
    {"num_local_experts", &HfConfig::n_experts, 0, kMaxExperts},
    {"num_experts", &HfConfig::n_experts, 0, kMaxExperts},
    {"n_routed_experts", &HfConfig::n_experts, 0, kMaxExperts},
    {"num_experts_per_tok", &HfConfig::n_experts_used, 0, kMaxExperts},
    {"top_k_experts", &HfConfig::n_experts_used, 1, kMaxExperts},
    {"moe_intermediate_size", &HfConfig::expert_dim, 1, kMaxFfn},
    {"shared_expert_intermediate_size", &HfConfig::shared_expert_dim, 0, kMaxFfn},
    {"n_shared_experts", &HfConfig::n_shared_experts, 0, kMaxExperts},
    {"decoder_sparse_step", &HfConfig::decoder_sparse_step, 0, kMaxLayers},
    {"first_k_dense_replace", &HfConfig::first_k_dense, 0, kMaxLayers},
    {"num_dense_layers", &HfConfig::first_k_dense, 0, kMaxLayers},
    {"n_group", &HfConfig::n_groups, 1, kMaxExperts},
    {"topk_group", &HfConfig::n_groups_used, 1, kMaxExperts},
    {"full_attention_interval", &HfConfig::full_attention_interval, 1, kMaxLayers},
};

struct FloatKey {
  const char* key;
  float HfConfig::*field;
};
constexpr FloatKey kScaleKeys[] = {
    {"query_pre_attn_scalar", &HfConfig::query_pre_attn_scalar},
    {"attn_logit_softcapping", &HfConfig::attn_softcap},
    {"final_logit_softcapping", &HfConfig::logit_softcap},
    {"embedding_multiplier", &HfConfig::embedding_multiplier},
    {"attention_multiplier", &HfConfig::attention_multiplier},
    {"residual_multiplier", &HfConfig::residual_multiplier},
    {"logits_scaling", &HfConfig::logits_scaling},
    {"routed_scaling_factor", &HfConfig::routed_scaling},
    {"swiglu_limit", &HfConfig::swiglu_limit},
};

// One entry for each layer; overrides the number of dense layers.
void read_mlp_types(const Json& types, HfConfig& c) {
  const std::vector<Json> list = types.elements();
  if (list.size() != static_cast<size_t>(c.n_layers))
    throw types.error("{} elements for {} layers", list.size(), c.n_layers);
  c.first_k_dense = 0;
  for (int i = 0; i < c.n_layers; ++i) {
    const std::string_view type = list[i].string();
    if (type != "dense" && type != "sparse")
      throw list[i].error("'{}' is not supported: expected dense or sparse", printable(type, 64));
    if (type == "dense") c.mlp_only_layers.push_back(i);
  }
}

void read_blocks(const Keys& text, HfConfig& c) {
  for (const IntKey& row : kBlockKeys) c.*row.field = integer_or(text, row.key, c.*row.field, row.low, row.high);
  if (!find_flag(text, "enable_moe_block").value_or(true)) c.n_experts = 0;
  if (text.find("expert_layer_period") && c.n_experts == 1) c.n_experts = 0;  // Jamba's dense models
  c.norm_topk_prob = find_flag(text, "norm_topk_prob");
  c.topk_method = string_or(text, "topk_method", "");
  if (const auto dense = text.find("mlp_only_layers"))
    for (const Json& layer : dense->elements())
      c.mlp_only_layers.push_back(static_cast<int>(layer.integer(0, kMaxLayers)));
  if (const auto types = text.find("mlp_layer_types")) read_mlp_types(*types, c);
  if (const auto clip = text.find("clip_qkv")) throw clip->error("limits of q, k and v are not supported");
  for (const char* key : kRefusedFlags)
    if (const auto flag = text.find(key); flag && flag->boolean()) throw flag->error("is true, which is not supported");
  constexpr std::string_view kPositions[] = {"absolute", "rope", "nope"};  // of encoders; of Granite
  const auto positions = text.find("position_embedding_type");
  if (positions && std::ranges::count(kPositions, positions->string()) == 0)
    throw positions->error("'{}' is not supported: supported are absolute, rope and nope",
                           printable(positions->string(), 64));
  if (c.n_experts == 0) return;
  if (c.n_experts_used < 1 || c.n_experts_used > c.n_experts)
    throw Error("{}: 'num_experts_per_tok' is missing or more than the {} experts", printable(c.source), c.n_experts);
}

// One width, or a list with the width of each layer.
void read_feed_forwards(const Keys& text, HfConfig& c) {
  const bool only_experts = !text.find("intermediate_size") && text.find("moe_intermediate_size");
  const Json width = text.at(only_experts ? "moe_intermediate_size" : "intermediate_size");
  if (!width.is_array()) return void(c.ffn_dim = static_cast<int>(width.integer(1, kMaxFfn)));
  for (const Json& one : width.elements()) {
    if (c.of_layers.size() == static_cast<size_t>(c.n_layers))
      throw width.error("has more elements than the model's {} layers", c.n_layers);
    c.of_layers.push_back({.ffn_dim = static_cast<int>(one.integer(1, kMaxFfn))});
  }
  if (c.of_layers.size() != static_cast<size_t>(c.n_layers))
    throw width.error("{} elements for {} layers", c.of_layers.size(), c.n_layers);
  c.ffn_dim = c.of_layers[0].ffn_dim;
  for (HfLayer& layer : c.of_layers)
    if (layer.ffn_dim == c.ffn_dim) layer.ffn_dim = 0;
}

void read_sizes(const Keys& text, HfConfig& c) {
  read_layer_types(text, c);
  const bool is_counted = text.find("num_hidden_layers") || c.layer_types.empty();
  c.n_layers = is_counted ? static_cast<int>(text.at("num_hidden_layers").integer(1, kMaxLayers))
                          : static_cast<int>(c.layer_types.size());
  if (!c.layer_types.empty() && c.layer_types.size() != static_cast<size_t>(c.n_layers))
    throw text.find("layer_types")
        .value_or(text.at("num_hidden_layers"))
        .error("{} elements for {} layers", c.layer_types.size(), c.n_layers);
  c.dim = static_cast<int>(text.at("hidden_size").integer(1, kMaxDim));
  c.n_heads = static_cast<int>(text.at("num_attention_heads").integer(1, kMaxHeads));
  c.n_kv_heads = integer_or(text, "num_key_value_heads", c.n_heads, 1, c.n_heads);
  if (c.n_heads % c.n_kv_heads != 0)
    throw text.at("num_attention_heads")
        .error("{} is not a multiple of num_key_value_heads {}", c.n_heads, c.n_kv_heads);
  if (!text.find("head_dim") && c.dim % c.n_heads != 0)
    throw text.at("hidden_size")
        .error("{} is not a multiple of {} heads, and head_dim is missing", c.dim, c.n_heads);
  c.head_dim = integer_or(text, "head_dim", c.dim / c.n_heads, 2, kMaxHeadDim);
  if (c.head_dim < 2 || c.head_dim > kMaxHeadDim)
    throw text.at("hidden_size")
        .error("{} for {} heads makes heads of {} dimensions: expected 2 to {}", c.dim, c.n_heads, c.head_dim,
               kMaxHeadDim);
  read_feed_forwards(text, c);
  c.n_vocab = static_cast<int>(text.at("vocab_size").integer(1, kMaxVocab));
  c.n_ctx = static_cast<int>(text.at("max_position_embeddings").integer(1, kMaxContext));
  c.has_rms_eps = text.own.find("rms_norm_eps").has_value();
  if (const auto eps = text.find("layer_norm_eps"); text.own.has("rms_norm_eps") && !c.has_rms_eps && eps)  // null
    return void(c.norm_eps = positive(*eps));
  const bool has_eps = !text.defaults || text.own.has("rms_norm_eps") || text.find("rms_norm_eps");
  c.norm_eps = has_eps ? positive(text.at("rms_norm_eps")) : 1e-6f;  // the default of most families
}

// One id or a list of ids.
void add_ids(const Json& object, const char* key, std::vector<int64_t>& ids) {
  const auto value = object.find(key);
  if (!value) return;
  for (const Json& id : value->is_array() ? value->elements() : std::vector<Json>{*value})
    if (const int64_t number = id.integer(0, kMaxId); std::find(ids.begin(), ids.end(), number) == ids.end())
      ids.push_back(number);
}

}  // namespace

struct HfFamilyKeys {
  JsonDocument document;  // keeps the values of `text` alive
  std::optional<JsonDocument> defaults;
  Keys text;
};

int HfConfig::integer_or(const char* key, int fallback, int64_t low, int64_t high) const {
  return keys ? ingot::integer_or(keys->text, key, fallback, low, high) : fallback;
}
bool HfConfig::has(const char* key) const { return keys && keys->text.find(key); }
bool HfConfig::flag_or(const char* key, bool fallback) const {
  return keys ? find_flag(keys->text, key).value_or(fallback) : fallback;
}
int HfConfig::integer_in(const char* object, const char* key, int fallback, int64_t low, int64_t high) const {
  const auto inner = keys ? keys->text.find(object) : std::nullopt;
  return inner ? ingot::integer_or(*inner, key, fallback, low, high) : fallback;
}
float HfConfig::factor_or(const char* key, float fallback) const {
  return keys ? find_positive(keys->text, key).value_or(fallback) : fallback;
}
std::optional<std::pair<float, float>> HfConfig::limits(const char* key) const {
  const auto value = keys ? keys->text.find(key) : std::nullopt;
  if (!value) return std::nullopt;
  const std::vector<Json> ends = value->elements();
  if (ends.size() != 2) throw value->error("{} numbers: expected 2", ends.size());
  const float low = static_cast<float>(ends[0].number()), high = number_or_infinity(ends[1]);
  if (!(low >= 0 && low <= high)) throw value->error("{} to {} are no limits: expected 0 <= low <= high", low, high);
  return std::pair(low, high);
}
std::optional<std::vector<int>> HfConfig::integers(const char* key, int64_t low, int64_t high) const {
  const auto list = keys ? keys->text.find(key) : std::nullopt;
  if (!list) return std::nullopt;
  std::vector<int> values;
  for (const Json& value : list->elements()) values.push_back(static_cast<int>(value.integer(low, high)));
  return values;
}

float HfConfig::positive_or(const char* key, float fallback) const {
  const auto value = keys ? keys->text.find(key) : std::nullopt;
  return value && value->number() != 0 ? positive(*value) : fallback;
}
std::string HfConfig::text_or(const char* key, const char* fallback) const {
  const auto value = keys ? keys->text.find(key) : std::nullopt;
  return value && value->is_string() ? std::string(value->string()) : fallback;
}
std::vector<float> HfConfig::factors(const char* key, size_t n) const {
  const auto list = keys ? keys->text.find(key) : std::nullopt;
  if (!list) return std::vector<float>(n, 1.0f);
  std::vector<float> all;
  for (const Json& one : list->elements())
    if (all.size() < n) all.push_back(positive(one));
  if (all.size() != n || list->elements().size() != n)
    throw list->error("{} numbers: expected {}", list->elements().size(), n);
  return all;
}
std::vector<std::string> HfConfig::texts(const char* key) const {
  std::vector<std::string> all;
  const auto list = keys ? keys->text.find(key) : std::nullopt;
  if (!list) return all;
  for (const Json& one : list->elements()) {
    if (all.size() == kMaxLayers) throw list->error("has more than {} elements", kMaxLayers);
    all.emplace_back(one.string());
  }
  return all;
}
std::vector<float> HfConfig::numbers(const char* key) const {
  std::vector<float> all;
  const auto list = keys ? keys->text.find(key) : std::nullopt;
  if (!list) return all;
  for (const Json& one : list->elements()) {
    if (all.size() == static_cast<size_t>(n_layers))
      throw error(key, "has more elements than the model's {} layers", n_layers);
    all.push_back(static_cast<float>(one.number()));
  }
  return all;
}

HfConfig parse_hf_config(const JsonDocument& document, std::string name, const HfDefaults& defaults) {
  const Json root = document.root();
  const auto thinker = root.find("thinker_config");  // of models that also speak
  const auto inner = (thinker ? *thinker : root).find("text_config");
  // Some files have all sizes of the text model twice; Voxtral's have one of them.
  const Json own = inner && !(root.find("hidden_size") && root.find("num_hidden_layers")) ? *inner : root;

  HfConfig c;
  c.quantization = HfQuantization::read(root);
  c.source = document.source();
  c.name = std::move(name);
  c.model_type = own.at("model_type").string();
  std::optional<JsonDocument> of_family;
  if (defaults) of_family = JsonDocument::parse(defaults(c.model_type), "the defaults of " + c.model_type);
  const Keys text{own, of_family ? std::optional(of_family->root()) : std::nullopt};
  c.keys = std::make_shared<const HfFamilyKeys>(HfFamilyKeys{document, of_family, text});
  read_sizes(text, c);
  c.hidden_act = string_or(text, "hidden_activation", string_or(text, "hidden_act", "silu").c_str());
  c.rope = read_rope(text, c.n_ctx, c.head_dim);
  read_window(text, c);
  read_layers_without_rope(text, c);
  read_differences(text, c);
  for (const FloatKey& row : kScaleKeys) c.*row.field = find_positive(text, row.key).value_or(c.*row.field);
  read_blocks(text, c);
  for (const auto& tied : {root.find("tie_word_embeddings"), text.find("tie_word_embeddings")})
    if (tied) c.tied_output = tied->boolean();
  return c;
}

HfConfig read_hf_config(const HfDirectory& directory, const HfDefaults& defaults) {
  HfConfig c = parse_hf_config(directory.document("config.json"), directory.name(), defaults);
  if (!c.quantization) c.quantization = HfQuantization::read(directory);
  return c;
}

std::vector<int64_t> read_hf_ends(const HfDirectory& directory) {
  std::vector<int64_t> ids;
  for (const char* name : {"config.json", "generation_config.json"}) {
    const auto document = directory.find_document(name);
    if (!document) continue;
    add_ids(document->root(), "eos_token_id", ids);
    if (const auto text = document->root().find("text_config")) add_ids(*text, "eos_token_id", ids);
  }
  return ids;
}

}  // namespace ingot
