#include "model/config/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/half.h"
#include "model/config/gguf_reader.h"
#include "model/config/kind.h"
#include "model/config/rope_sections.h"

namespace ingot {
namespace {

// Files with LongRoPE have the two lists of factors as tensors (tensors.cc), and may lack the scaling's name.
RopeScaling read_long_rope(const GgufKeys& keys, int n_ctx) {
  RopeScaling scaling{.kind = RopeScalingKind::kLongRope};
  scaling.original_context = keys.integer_or("rope.scaling.original_context_length", n_ctx, 1, 1 << 30);
  scaling.magnitude = keys.positive_or("rope.scaling.attn_factor", 1.0f);
  return scaling;
}

RopeScaling read_rope_scaling(const GgufKeys& keys, int n_ctx, const Arch& arch) {
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
    scaling.extrapolation = keys.share_or("rope.scaling.yarn_ext_factor", scaling.extrapolation);
    scaling.magnitude = keys.positive_or("rope.scaling.attn_factor", 1.0f) *
                        yarn_magnitude(scaling.factor, scaling.extrapolation);
    if (keys.has("rope.scaling.yarn_log_multiplier"))
      scaling.magnitude /=
          1.0f + 0.1f * keys.positive("rope.scaling.yarn_log_multiplier") * std::log(std::max(1.0f, scaling.factor));
  } else {
    throw keys.error("rope.scaling.type", "'{}' is not supported: supported are none, linear, yarn and longrope",
                     printable(kind));
  }
  return scaling;
}

// Finds the layers with a window: from the file's list or else the architecture's period. Without either, all layers
// have it.
void read_windows(const GgufKeys& keys, Config& c) {
  const Arch& arch = *c.arch;
  c.sliding_window = layer_window(arch, keys.integer_or("attention.sliding_window", 0, 0, 1 << 30));
  const char* kPattern = "attention.sliding_window_pattern";
  const Value* pattern = keys.metadata().find(keys.name(kPattern));
  const bool listed = pattern != nullptr && pattern->is_array();
  const auto has_window =
      listed ? keys.metadata().find_bool_per_layer(keys.name(kPattern), c.layers.size()) : std::nullopt;
  const int period = pattern != nullptr && !listed ? keys.integer(kPattern, 0, c.n_layers) : arch.window_period;
  for (int i = 0; i < c.n_layers; ++i)
    if (has_window ? (*has_window)[i] : arch.has_window(i, period)) c.layers[i].window = c.sliding_window;
}

void read_layers(const GgufKeys& keys, const Gguf& file, Config& c) {
  std::vector<LayerConfig>& layers = c.layers;
  const Arch& arch = *c.arch;
  const int n_dense = keys.integer_or("leading_dense_block_count", 0, 0, c.n_layers);
  const int step = keys.integer_or("interleave_moe_layer_step", 1, 1, 1024);
  const bool has_rope = !arch.rope_opt_in || keys.boolean_or("rope.scaling.finetuned", true);  // llama.cpp's key for it
  for (int i = 0; i < c.n_layers; ++i) {
    const bool windowed = layers[i].window > 0;
    if (c.local_theta > 0 && windowed) layers[i].rope = LayerRope::kLocal;
    if (arch.rope_needs_window && c.sliding_window > 0 && !windowed) layers[i].rope = LayerRope::kNone;
    if (arch.no_rope_period > 0 && (i + 1) % arch.no_rope_period == 0) layers[i].rope = LayerRope::kNone;
    if (arch.learned_positions || !has_rope) layers[i].rope = LayerRope::kNone;
    const bool has_router = file.find(fmt::format("blk.{}.ffn_gate_inp.weight", i)) != nullptr;
    const bool has_experts = arch.routers_mark_experts ? has_router : i >= n_dense && (i + 1) % step == 0;
    if (c.experts.n > 0 && has_experts) set_experts(layers[i], arch);
  }
}

// Finds the only part of each layer: layers with heads of keys have attention, layers with columns of a feed-forward
// have one or experts, and the others keep states.
void read_single_parts(const GgufKeys& keys, Config& c) {
  const auto heads = keys.integers_of_layers("attention.head_count_kv", 0, 4096, c.n_layers),
             columns = keys.integers_of_layers("feed_forward_length", 0, 1 << 24, c.n_layers);
  const PartKind& ffn = c.experts.n > 0 ? kExpertsPart : kFeedForwardPart;
  for (size_t i = 0; i < c.layers.size(); ++i)
    c.layers[i].parts = {{.kind = heads[i] > 0     ? kv_mixer(*c.arch)
                                  : columns[i] > 0 ? &ffn
                                                   : state_mixer(*c.arch)}};
}

// The last layers may read the keys of the last layer of their kind that has its own.
void share_keys(const GgufKeys& keys, Config& c) {
  const int n_shared = keys.integer_or("attention.shared_kv_layers", 0, 0, c.n_layers - 1);
  const int first = c.n_layers - n_shared;
  for (int i = first; i < c.n_layers; ++i) {
    c.layers[i].kv_layer = last_of_kind(c, i, first);
    if (c.layers[i].kv_layer < 0)
      throw keys.error("attention.shared_kv_layers",
                       "{}: layer {} has no earlier layer of its kind whose keys it can read", n_shared, i);
  }
}

// One width, or one for each layer.
void read_feed_forwards(const GgufKeys& keys, Config& c) {
  const auto list = keys.integers_of_layers("feed_forward_length", 0, 1 << 24, c.n_layers);
  const bool has_dense = std::ranges::any_of(list, [](int n) { return n > 0; });
  if (!has_dense && keys.has("expert_feed_forward_length")) {
    c.ffn_dim = keys.integer_of_layers("expert_feed_forward_length", 1, 1 << 24);
    return;
  }
  if (!has_dense) keys.integer("feed_forward_length", 1, 1 << 24);
  c.ffn_dim = *std::ranges::find_if(list, [](int n) { return n > 0; });
  for (int i = 0; i < c.n_layers; ++i)
    if (list[i] > 0 && list[i] != c.ffn_dim) c.layers[i].ffn_dim = list[i];
}

ExpertConfig read_experts(const GgufKeys& keys, const Config& c) {
  ExpertConfig e;
  e.n = keys.integer_or("expert_count", 0, 0, 1 << 12);
  if (e.n == 0 || (e.n == 1 && c.arch->routers_mark_experts)) return {};
  e.n_used = keys.integer("expert_used_count", 1, std::min(e.n, 256));
  e.ffn_dim = keys.integer_or("expert_feed_forward_length", c.ffn_dim, 1, 1 << 24);
  e.shared_dim = keys.integer_or("expert_shared_feed_forward_length",
                                 int64_t{e.ffn_dim} * keys.integer_or("expert_shared_count", 0, 0, 64), 0, 1 << 24);
  e.normalize =
      keys.boolean_or("expert_weights_norm",
                      keys.boolean_or("norm_top_k_prob", c.arch->normalizes_experts));  // Ollama's name for the key
  e.scale = keys.positive_or("expert_weights_scale", 1.0f);
  const int usual = c.arch->scoring == Scoring::kSigmoid ? 2 : 1;
  e.latent_dim = keys.integer_or("moe_latent_size", 0, 0, 1 << 20);
  const int gating = keys.integer_or("expert_gating_func", usual, 0, 1 << 16);
  if (c.arch->scoring == Scoring::kSparseMixer) e.scoring = c.arch->scoring;
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

}  // namespace

float usual_embedding_scale(const Config& c) {
  if (!c.arch->scales_embedding) return 1;
  const float root = std::sqrt(static_cast<float>(c.dim));
  return c.arch->rounds_embedding_scale ? float_from_bf16(bf16_from_float(root)) : root;
}

namespace {

// The factors and caps that the model applies to its numbers.
void read_scales(const GgufKeys& keys, Config& c) {
  c.embedding_scale =
      keys.positive_or("embedding_scale", usual_embedding_scale(c));
  c.residual_scale = keys.positive_or("residual_scale", 1.0f);
  c.logit_scale = keys.positive_or("logit_scale", 1.0f);
  if (!c.arch->scales_logits) c.logit_scale = 1.0f / c.logit_scale;
  if (keys.has("attention.scale")) c.attention_scale = keys.positive("attention.scale");
  if (c.arch->wide_scale_layers == c.n_layers)
    c.attention_scale = 1.0f / std::sqrt(static_cast<float>(c.dim) / static_cast<float>(c.n_heads));
  if (keys.has("attn_logit_softcapping")) c.attention_softcap = keys.positive("attn_logit_softcapping");
  if (keys.has("final_logit_softcapping")) c.logit_softcap = keys.positive("final_logit_softcapping");
}

int heads_of_layer(const Config& c, int layer) {
  const std::optional<LayerHeads>& own = c.layers[static_cast<size_t>(layer)].heads;
  return own ? own->n_heads : c.n_heads;
}

// Facts that only some families state. Llama 4 with 128 experts has no norms of q and k.
void read_family_facts(const GgufKeys& keys, const Gguf& file, Config& c) {
  const bool is_llama4 = c.arch->scales_expert_input;
  if (is_llama4) c.query_scale.beta = 0.1f;
  if (keys.has("attention.temperature_scale")) c.query_scale.beta = keys.positive("attention.temperature_scale");
  const int period = c.rope_scaling.original_context > 0 ? c.rope_scaling.original_context : c.n_ctx_train;
  c.query_scale.period = keys.integer_or("attention.temperature_length", is_llama4 ? 8192 : period, 1, 1 << 30);
  c.query_scale.offset = is_llama4;
  c.scales_without_rope = is_llama4;
  if (c.arch->normalizes_embedding) c.post_norm_eps = 1e-8f;                         // no key says these
  if (c.arch->norm_by_eps && c.experts.shared_dim > 0) c.experts.scale /= 2, c.experts.shared_scale = 0.5f;
  if (is_llama4 && c.experts.n == 128) c.norms_heads = false;
  if (is_llama4) c.n_ctx_train = std::min(c.n_ctx_train, keys.integer_or("attention.chunk_size", 8192, 1, 1 << 30));
  for (int layer = 0; layer < c.n_layers && c.arch->gates_outputs && !c.gates_heads; ++layer) {
    const TensorInfo* gate = file.find(fmt::format("blk.{}.attn_gate.weight", layer));
    c.gates_heads =
        gate != nullptr && gate->n_dims == 2 && static_cast<int>(gate->shape[1]) == heads_of_layer(c, layer);
  }
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

Config config_from_gguf(const Gguf& file) {
  const Metadata& metadata = file.metadata();
  refuse_other_kinds(metadata);
  const std::string name(metadata.get_string("general.architecture"));
  Config c;
  c.arch = &find_gguf_arch(name);
  c.name = std::string(metadata.find_string("general.name").value_or(""));
  const GgufKeys keys(metadata, name);
  const int n_blocks = keys.integer("block_count", 1, 1024);
  refuse_more_layers(file, n_blocks);
  c.n_layers =
      n_blocks - keys.integer_or("nextn_predict_layers", 0, 0, n_blocks - 1);  // the last layers only draft tokens
  c.dim = keys.integer("embedding_length", 1, 1 << 20);
  c.n_ctx_train = keys.integer("context_length", 1, 1 << 30);
  c.rope_scaling = file.find("rope_factors_long.weight") != nullptr ? read_long_rope(keys, c.n_ctx_train)
                                                                    : read_rope_scaling(keys, c.n_ctx_train, *c.arch);
  for (int i = 0; i < c.n_layers; ++i) c.layers.push_back({.parts = arch_parts(*c.arch, i, false)});
  read_windows(keys, c);
  for (const PartKind* kind : all_kinds())
    if (kind->read_gguf != nullptr && arch_has(*c.arch, *kind)) kind->read_gguf(keys, c);
  const bool has_attention = kv_mixer(*c.arch) != nullptr;
  if (!has_attention) c.n_heads = c.n_kv_heads = c.head_dim = 1;  // code may divide by them
  if (arch_has(*c.arch, kFeedForwardPart)) read_feed_forwards(keys, c);
  if (c.arch->norm_by_eps && keys.has("attention.layer_norm_rms_epsilon")) c.norm_kind = NormKind::kRms;
  c.norm_eps = keys.positive(c.norm() == NormKind::kLayer ? "attention.layer_norm_epsilon"
                                                              : "attention.layer_norm_rms_epsilon");
  if (!c.arch->learned_positions && has_attention) {
    c.rot_dim = keys.integer_or("rope.dimension_count", c.head_dim, 2, c.head_dim);
    if (keys.has("rope.dimension_count_swa"))
      c.local_rot_dim = keys.integer("rope.dimension_count_swa", 2, c.local_rot_dim > 0 ? c.local_rot_dim : c.head_dim);
    if (c.local_rot_dim == c.rot_dim) c.local_rot_dim = 0;
    if (c.local_rot_dim % 2 != 0)
      throw keys.error("rope.dimension_count_swa", "{} is not an even number", c.local_rot_dim);
    if (c.rot_dim % 2 != 0) throw keys.error("rope.dimension_count", "{} is not an even number", c.rot_dim);
  }
  c.rope_theta = keys.positive_or("rope.freq_base", 10000.0f);
  if (const auto sections = keys.metadata().find_i32s(keys.name("rope.dimension_sections"))) {
    for (const int32_t size : *sections)
      if (size < 0 || size > 4096) throw keys.error("rope.dimension_sections", "{} is out of range", size);
    if (sections->size() <= 4) c.parts.set(RopeSections{{sections->begin(), sections->end()}});
  }
  c.rope_layout = c.arch->gguf_rope;
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
  read_family_facts(keys, file, c);
  read_layers(keys, file, c);
  if (c.arch->one_part) read_single_parts(keys, c);
  share_keys(keys, c);
  read_scales(keys, c);
  c.n_vocab = vocabulary_rows(file);
  c.n_token_types = token_types(file);
  return c;
}

}  // namespace ingot
