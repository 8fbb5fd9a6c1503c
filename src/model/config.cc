#include "model/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "io/gguf/gguf.h"

namespace ingot {
namespace {

// Reads "<arch>.<key>" and names that key in every error.
class Keys {
 public:
  Keys(const Metadata& metadata, std::string prefix) : metadata_(metadata), prefix_(std::move(prefix) + ".") {}

  int integer(const char* key, int64_t low, int64_t high) const {
    return in_range(key, metadata_.get_u32(prefix_ + key), low, high);
  }
  int integer_or(const char* key, int64_t fallback, int64_t low, int64_t high) const {
    return in_range(key, metadata_.find_u32(prefix_ + key).value_or(static_cast<uint32_t>(fallback)), low, high);
  }
  // One number for all layers, or a list with equal numbers for every layer. `skip`: a number of the list to ignore.
  int integer_of_layers(const char* key, int64_t low, int64_t high, std::optional<uint32_t> skip = {}) const {
    const Value* value = metadata_.find(prefix_ + key);
    if (value == nullptr || !value->is_array()) return integer(key, low, high);
    const auto list = *metadata_.find_u32_per_layer(prefix_ + key, metadata_.get_u32(prefix_ + "block_count"));
    const auto first = std::ranges::find_if(list, [&](uint32_t n) { return n != skip; });
    if (first == list.end()) throw error(key, "says {} of every layer", skip.value_or(0));
    for (size_t i = 0; i < list.size(); ++i)
      if (list[i] != *first && list[i] != skip)
        throw error(key, "is {} in layer {} and {} in layer {}: layers that differ in it are not supported", *first,
                    first - list.begin(), list[i], i);
    return in_range(key, *first, low, high);
  }
  float positive(const char* key) const { return above_zero(key, metadata_.get_f32(prefix_ + key)); }
  float positive_or(const char* key, float fallback) const {
    return above_zero(key, metadata_.find_f32(prefix_ + key).value_or(fallback));
  }
  std::string string_or(const char* key, std::string_view fallback) const {
    return std::string(metadata_.find_string(prefix_ + key).value_or(fallback));
  }
  bool boolean_or(const char* key, bool fallback) const {
    return metadata_.find_bool(prefix_ + key).value_or(fallback);
  }
  const Metadata& metadata() const { return metadata_; }
  std::string name(const char* key) const { return prefix_ + key; }
  bool has(const char* key) const { return metadata_.contains(prefix_ + key); }
  template <class... Args>
  Error error(const char* key, fmt::format_string<Args...> format, Args&&... args) const {
    return metadata_.error(prefix_ + key, format, std::forward<Args>(args)...);
  }

 private:
  int in_range(const char* key, int64_t value, int64_t low, int64_t high) const {
    if (value < low || value > high) throw error(key, "{} is out of range: expected {} to {}", value, low, high);
    return static_cast<int>(value);
  }
  float above_zero(const char* key, float value) const {
    if (!(value > 0)) throw error(key, "{} is out of range: expected a positive number", value);
    return value;
  }

  const Metadata& metadata_;
  const std::string prefix_;
};

// Ollama's files of hybrid models list this as attention.head_count_kv for recurrent layers.
constexpr uint32_t kNoHeads = 0;

// Files with LongRoPE have the two lists of factors as tensors (tensors.cc), and may lack the scaling's name.
RopeScaling read_long_rope(const Keys& keys, int n_ctx) {
  RopeScaling scaling{.kind = RopeScalingKind::kLongRope};
  scaling.original_context = keys.integer_or("rope.scaling.original_context_length", n_ctx, 1, 1 << 30);
  scaling.magnitude = keys.positive_or("rope.scaling.attn_factor", 1.0f);
  return scaling;
}

RopeScaling read_rope_scaling(const Keys& keys, int n_ctx, const Arch& arch) {
  RopeScaling scaling;
  const std::string kind = keys.string_or("rope.scaling.type", keys.has("rope.scale_linear") ? "linear" : "none");
  if (kind == "none") return scaling;
  if (kind == "longrope") return read_long_rope(keys, n_ctx);
  scaling.factor = keys.positive_or("rope.scaling.factor", keys.positive_or("rope.scale_linear", 1.0f));
  if (kind == "linear") {
    scaling.kind = RopeScalingKind::kLinear;
  } else if (kind == "yarn") {
    scaling.kind = RopeScalingKind::kYarn;
    scaling.truncate = arch.yarn_truncates;
    scaling.original_context = keys.integer_or("rope.scaling.original_context_length", n_ctx, 1, 1 << 30);
    scaling.beta_fast = keys.positive_or("rope.scaling.yarn_beta_fast", scaling.beta_fast);
    scaling.beta_slow = keys.positive_or("rope.scaling.yarn_beta_slow", scaling.beta_slow);
    scaling.magnitude =
        keys.positive_or("rope.scaling.attn_factor", 1.0f) * (1.0f + 0.1f * std::log(std::max(1.0f, scaling.factor)));
  } else {
    throw keys.error("rope.scaling.type", "'{}' is not supported: supported are none, linear, yarn and longrope",
                     printable(kind));
  }
  return scaling;
}

void read_heads(const Keys& keys, Config& c) {
  c.n_heads = keys.integer_of_layers("attention.head_count", 1, 4096);
  const auto skip = c.arch->delta_period > 0 ? std::optional(kNoHeads) : std::nullopt;
  c.n_kv_heads = keys.has("attention.head_count_kv")
                     ? keys.integer_of_layers("attention.head_count_kv", 1, c.n_heads, skip)
                     : c.n_heads;
  if (c.n_heads % c.n_kv_heads != 0)
    throw keys.error("attention.head_count", "{} is not a multiple of attention.head_count_kv {}", c.n_heads,
                     c.n_kv_heads);
  if (!keys.has("attention.key_length") && c.dim % c.n_heads != 0)
    throw keys.error("embedding_length",
                     "{} is not a multiple of attention.head_count {}, and attention.key_length is missing", c.dim,
                     c.n_heads);
  c.head_dim = keys.integer_or("attention.key_length", c.dim / c.n_heads, 2, 1024);
  const int value_dim = keys.integer_or("attention.value_length", c.head_dim, 2, 1024);
  if (value_dim != c.head_dim)
    throw keys.error("attention.value_length", "{} differs from attention.key_length {}: not supported", value_dim,
                     c.head_dim);
}

// Finds the layers with a window: from the file's list or else the architecture's period. Without either, all layers
// have it.
std::vector<LayerKind> read_layers(const Keys& keys, const Config& c) {
  std::vector<LayerKind> layers(c.n_layers);
  const Arch& arch = *c.arch;
  const char* kPattern = "attention.sliding_window_pattern";
  const Value* pattern = keys.metadata().find(keys.name(kPattern));
  const bool listed = pattern != nullptr && pattern->is_array();
  const auto has_window =
      listed ? keys.metadata().find_bool_per_layer(keys.name(kPattern), layers.size()) : std::nullopt;
  const int period = pattern != nullptr && !listed ? keys.integer(kPattern, 0, c.n_layers) : arch.window_period;
  const int n_dense = keys.integer_or("leading_dense_block_count", 0, 0, c.n_layers);
  for (int i = 0; i < c.n_layers; ++i) {
    const bool windowed = has_window ? (*has_window)[i] : arch.has_window(i, period);
    if (windowed) layers[i].window = c.sliding_window;
    if (c.local_theta > 0 && windowed) layers[i].rope = LayerRope::kLocal;
    if (arch.rope_needs_window && c.sliding_window > 0 && !windowed) layers[i].rope = LayerRope::kNone;
    if (arch.no_rope_period > 0 && (i + 1) % arch.no_rope_period == 0) layers[i].rope = LayerRope::kNone;
    if (arch.learned_positions) layers[i].rope = LayerRope::kNone;
    layers[i].experts = c.experts.n > 0 && i >= n_dense;
  }
  return layers;
}

// Gated delta nets, read from the keys that llama.cpp uses for state-space models.
DeltaConfig read_delta(const Keys& keys, const Arch& arch) {
  DeltaConfig d{.tiled = keys.boolean_or("ssm.v_head_reordered", arch.tiles_value_heads)};  // a key of Ollama's
  d.n_key_heads = keys.integer("ssm.group_count", 1, 4096);
  d.n_value_heads = keys.integer("ssm.time_step_rank", 1, 4096);
  d.key_dim = keys.integer("ssm.state_size", 1, 1024);
  d.conv_width = keys.integer("ssm.conv_kernel", 2, kMaxConvWidth);
  if (d.n_value_heads % d.n_key_heads != 0)
    throw keys.error("ssm.time_step_rank", "{} is not a multiple of ssm.group_count {}", d.n_value_heads,
                     d.n_key_heads);
  const int values = keys.integer("ssm.inner_size", 1, 1 << 20);
  if (values % d.n_value_heads != 0)
    throw keys.error("ssm.inner_size", "{} is not a multiple of ssm.time_step_rank {}", values, d.n_value_heads);
  d.value_dim = values / d.n_value_heads;
  return d;
}

// Finds the gated delta nets: from the file's list, or else the layers without KV heads, or else all but the last layer
// of each period.
void mark_recurrent_layers(const Keys& keys, Config& c) {
  const auto listed = keys.metadata().find_bool_per_layer(keys.name("attention.recurrent_layers"), c.layers.size());
  const Value* heads = keys.metadata().find(keys.name("attention.head_count_kv"));
  const auto kv_heads = heads != nullptr && heads->is_array()
                            ? keys.metadata().get_u32s(keys.name("attention.head_count_kv"))
                            : std::vector<uint32_t>{};
  const bool has_period = !listed && std::ranges::count(kv_heads, kNoHeads) == 0;
  const int period = keys.integer_or("full_attention_interval", c.arch->delta_period, 1, 1024);
  for (size_t i = 0; i < c.layers.size(); ++i)
    c.layers[i].recurrent = listed ? (*listed)[i] : has_period ? (i + 1) % period != 0 : kv_heads[i] == kNoHeads;
}

ExpertConfig read_experts(const Keys& keys, const Config& c) {
  ExpertConfig e;
  e.n = keys.integer_or("expert_count", 0, 0, 1 << 12);
  if (e.n == 0) return e;
  e.n_used = keys.integer("expert_used_count", 1, std::min(e.n, 256));
  e.ffn_dim = keys.integer_or("expert_feed_forward_length", c.ffn_dim, 1, 1 << 24);
  e.shared_dim = keys.integer_or("expert_shared_feed_forward_length",
                                 int64_t{e.ffn_dim} * keys.integer_or("expert_shared_count", 0, 0, 64), 0, 1 << 24);
  e.normalize =
      keys.boolean_or("expert_weights_norm",
                      keys.boolean_or("norm_top_k_prob", c.arch->normalizes_experts));  // Ollama's name for the key
  e.scale = keys.positive_or("expert_weights_scale", 1.0f);
  const int gating = keys.integer_or("expert_gating_func", 1, 0, 1 << 16);
  if (gating > 3)
    throw keys.error("expert_gating_func",
                     "{} is not supported: supported are 1 (softmax), 2 (sigmoid) and 3 (softmax of the chosen)",
                     gating);
  if (gating == 2) e.scoring = Scoring::kSigmoid;
  if (gating == 3) e.normalize = true;
  e.n_groups = keys.integer_or("expert_group_count", 1, 1, e.n);
  e.n_groups_used = keys.integer_or("expert_group_used_count", e.n_groups, 1, e.n_groups);
  if (e.n % e.n_groups != 0)
    throw keys.error("expert_count", "{} is not a multiple of expert_group_count {}", e.n, e.n_groups);
  if (e.n / e.n_groups * e.n_groups_used < e.n_used)
    throw keys.error("expert_group_used_count", "{} groups hold fewer experts than expert_used_count {}",
                     e.n_groups_used, e.n_used);
  return e;
}

// The factors and caps that the model applies to its numbers.
void read_scales(const Keys& keys, Config& c) {
  c.embedding_scale =
      keys.positive_or("embedding_scale", c.arch->scales_embedding ? std::sqrt(static_cast<float>(c.dim)) : 1.0f);
  c.residual_scale = keys.positive_or("residual_scale", 1.0f);
  c.logit_scale = 1.0f / keys.positive_or("logit_scale", 1.0f);
  if (keys.has("attention.scale")) c.attention_scale = keys.positive("attention.scale");
  if (c.arch->wide_scale_layers == c.n_layers)
    c.attention_scale = 1.0f / std::sqrt(static_cast<float>(c.dim) / static_cast<float>(c.n_heads));
  if (c.latent.kv_rank > 0 &&
      keys.has("rope.scaling.yarn_log_multiplier")) {  // this factor applies to scores, not to cos and sin
    c.latent.log_stretch = keys.positive("rope.scaling.yarn_log_multiplier");
    c.rope_scaling.magnitude = keys.positive_or("rope.scaling.attn_factor", 1.0f);
  }
  if (keys.has("attn_logit_softcapping")) c.attention_softcap = keys.positive("attn_logit_softcapping");
  if (keys.has("final_logit_softcapping")) c.logit_softcap = keys.positive("final_logit_softcapping");
}

// Attention over latents. In newer files, n_kv_heads and the head lengths describe the cached latents, and separate
// keys have the lengths of the heads. Older files have the lengths of the heads only.
void read_latent(const Keys& keys, Config& c) {
  LatentConfig& l = c.latent;
  c.n_heads = keys.integer("attention.head_count", 1, 4096);
  c.n_kv_heads = 1;
  l.q_rank = keys.integer_or("attention.q_lora_rank", 0, 0, 1 << 16);
  l.kv_rank = keys.integer("attention.kv_lora_rank", 1, 1 << 13);
  l.rope_dim = keys.integer("rope.dimension_count", 2, 1024);
  const char* key_length = keys.has("attention.key_length_mla") ? "attention.key_length_mla" : "attention.key_length";
  const char* value_length =
      keys.has("attention.value_length_mla") ? "attention.value_length_mla" : "attention.value_length";
  l.nope_dim = keys.integer(key_length, l.rope_dim + 1, 4096) - l.rope_dim;
  l.value_dim = keys.integer(value_length, 1, 4096);
  c.head_dim = l.kv_rank + l.rope_dim;
}

// The rows of the embedding. loader.cc checks them against the tokenizer's number of tokens.
int vocabulary_rows(const Gguf& file) {
  constexpr int64_t kMaxRows = 1 << 24;
  const TensorInfo* embedding = file.find("token_embd.weight");
  if (embedding == nullptr)
    throw Error("{}: tensor 'token_embd.weight' is missing{}", printable(file.metadata().source()),
                file.tensors().empty() ? ": this file holds a vocabulary, not a model" : "");
  const int64_t n_vocab = embedding->n_dims == 2 ? static_cast<int64_t>(embedding->shape[1]) : 0;
  if (n_vocab < 1 || n_vocab > kMaxRows)
    throw Error("{}: tensor 'token_embd.weight' has {} dimensions and {} rows: expected 2 and at most {}",
                printable(file.metadata().source()), embedding->n_dims, n_vocab, kMaxRows);
  return static_cast<int>(n_vocab);
}

int token_types(const Gguf& file) {
  const TensorInfo* types = file.find("token_types.weight");
  return types == nullptr ? 0 : static_cast<int>(types->n_elements() / static_cast<int64_t>(types->shape[0]));
}

// Refuses files that accompany a model and have some of its keys.
void refuse_other_kinds(const Metadata& metadata) {
  constexpr std::pair<std::string_view, const char*> kKinds[] = {{"adapter", "a LoRA adapter"},
                                                                 {"mmproj", "a multimodal projector"},
                                                                 {"imatrix", "an importance matrix"},
                                                                 {"vocab", "a vocabulary"}};
  const auto type = metadata.find_string("general.type");
  for (const auto& [name, what] : kKinds)
    if (type == name)
      throw Error("{}: this file is {}, not a model; give the model's own file", printable(metadata.source()), what);
}

// Readers would silently compute with a part of the model.
void refuse_more_layers(const Gguf& file, int n_blocks) {
  for (const TensorInfo& tensor : file.tensors()) {
    constexpr std::string_view kPrefix = "blk.";
    int layer = -1;
    if (!tensor.name.starts_with(kPrefix)) continue;
    std::from_chars(tensor.name.data() + kPrefix.size(), tensor.name.data() + tensor.name.size(), layer);
    if (layer >= n_blocks)
      throw Error("{}: tensor '{}' belongs to layer {}, but the file says that it has {} layers (block_count)",
                  printable(file.metadata().source()), printable(tensor.name), layer, n_blocks);
  }
}

}  // namespace

int Config::widest_window() const {
  if (draft_head) return 0;
  int widest = 0;
  for (int i = 0; i < n_layers; ++i) {
    const int window = layer(i).window;
    if (window == 0) return 0;
    widest = std::max(widest, window);
  }
  return widest;
}

Config config_from_gguf(const Gguf& file) {
  const Metadata& metadata = file.metadata();
  refuse_other_kinds(metadata);
  const std::string name(metadata.get_string("general.architecture"));
  Config c;
  c.arch = &find_gguf_arch(name);
  c.name = std::string(metadata.find_string("general.name").value_or(""));
  const Keys keys(metadata, name);
  const int n_blocks = keys.integer("block_count", 1, 1024);
  refuse_more_layers(file, n_blocks);
  c.n_layers =
      n_blocks - keys.integer_or("nextn_predict_layers", 0, 0, n_blocks - 1);  // the last layers only draft tokens
  c.dim = keys.integer("embedding_length", 1, 1 << 20);
  c.arch->latent_attention ? read_latent(keys, c) : read_heads(keys, c);
  const bool has_dense =
      keys.has("feed_forward_length") && keys.integer_of_layers("feed_forward_length", 0, 1 << 24) > 0;
  const bool only_experts = !has_dense && keys.has("expert_feed_forward_length");
  c.ffn_dim = keys.integer_of_layers(only_experts ? "expert_feed_forward_length" : "feed_forward_length", 1, 1 << 24);
  c.n_ctx_train = keys.integer("context_length", 1, 1 << 30);
  c.norm_eps = keys.positive(c.arch->norm == NormKind::kLayer ? "attention.layer_norm_epsilon"
                                                              : "attention.layer_norm_rms_epsilon");
  if (!c.arch->learned_positions) {
    c.rot_dim = keys.integer_or("rope.dimension_count", c.head_dim, 2, c.head_dim);
    if (c.rot_dim % 2 != 0) throw keys.error("rope.dimension_count", "{} is not an even number", c.rot_dim);
  }
  c.rope_theta = keys.positive_or("rope.freq_base", 10000.0f);
  c.rope_scaling = file.find("rope_factors_long.weight") != nullptr ? read_long_rope(keys, c.n_ctx_train)
                                                                    : read_rope_scaling(keys, c.n_ctx_train, *c.arch);
  c.rope_layout = c.arch->gguf_rope;
  c.sliding_window = layer_window(*c.arch, keys.integer_or("attention.sliding_window", 0, 0, 1 << 30));
  const bool denies_causal = !keys.boolean_or("attention.causal", !c.arch->encoder);
  if (c.arch->encoder && !denies_causal)
    throw keys.error("attention.causal", "is true: '{}' models are read whole", c.arch->gguf_name);
  if (denies_causal && !c.arch->bidirectional && c.sliding_window > 0)
    throw keys.error("attention.causal", "is false, and layers have windows: not supported together");
  c.bidirectional = c.arch->bidirectional || denies_causal;
  if (c.arch->local_theta != 0 && c.sliding_window > 0)
    c.local_theta =
        keys.positive_or("rope.freq_base_swa", c.arch->local_theta == kSameTheta ? c.rope_theta : c.arch->local_theta);
  c.experts = read_experts(keys, c);
  c.layers = read_layers(keys, c);
  if (c.arch->delta_period > 0) {
    c.delta = read_delta(keys, *c.arch);
    mark_recurrent_layers(keys, c);
  }
  read_scales(keys, c);
  c.n_vocab = vocabulary_rows(file);
  c.n_token_types = token_types(file);
  return c;
}

}  // namespace ingot
