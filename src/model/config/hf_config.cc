// Config from a Hugging Face config.json (config.cc reads GGUF): the file's values, completed by the architecture's
// row. A variant that would change the results and is not implemented is refused by name.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "io/huggingface/config.h"
#include "model/config/kind.h"
#include "model/config/multipliers.h"
#include "model/config/rope_sections.h"

namespace ingot {
namespace {

struct ActivationName {
  const char* name;
  Activation activation;
};
constexpr ActivationName kActivations[] = {{"silu", Activation::kSilu},
                                           {"swish", Activation::kSilu},
                                           {"swiglu", Activation::kSilu},
                                           {"gelu", Activation::kGelu},
                                           {"relu2", Activation::kSquaredRelu},
                                           {"sqrelu", Activation::kSquaredRelu},
                                           {"gelu_pytorch_tanh", Activation::kGeluTanh},
                                           {"gelu_fast", Activation::kGeluTanh},
                                           {"gelu_new", Activation::kGeluTanh}};

// Decoders have the activation of their architecture.
Activation activation_of(const HfConfig& file, const Arch& arch) {
  for (const ActivationName& row : kActivations)
    if (file.hidden_act == row.name && (arch.encoder || arch.activation == row.activation)) return row.activation;
  // Gemma's first files say "gelu" for the tanh approximation; gpt-oss's files say "silu" for clamped SwiGLU.
  if (file.hidden_act == "gelu" && arch.activation == Activation::kGeluTanh) return arch.activation;
  if (file.hidden_act == "silu" && arch.activation == Activation::kClampedSwiglu &&
      (file.swiglu_limit == 0 || file.swiglu_limit == 7))
    return arch.activation;
  if (file.hidden_act == "xielu" && !arch.gated) return arch.activation;  // FeedForwardBlock::xielu
  throw file.error("hidden_act", "'{}' is not supported for models of type '{}'", printable(file.hidden_act, 64),
                   arch.hf_name);
}

// The factor on cos and sin (Hugging Face's _compute_yarn_parameters).
float yarn_magnitude(const HfRope& rope, float factor) {
  auto magnitude = [&](float mscale) { return factor <= 1 ? 1.0f : 0.1f * mscale * std::log(factor) + 1.0f; };
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.mscale && rope.mscale_all_dim) return magnitude(*rope.mscale) / magnitude(*rope.mscale_all_dim);
  return magnitude(1);
}

// Missing values follow from the ratio of the contexts (Hugging Face's _compute_longrope_parameters).
RopeScaling long_rope(const HfConfig& file, int rot_dim) {
  const HfRope& rope = file.rope;
  RopeScaling scaling{.kind = RopeScalingKind::kLongRope,
                      .original_context = rope.original_context,
                      .short_factors = rope.short_factor,
                      .long_factors = rope.long_factor};
  for (const auto* factors : {&rope.short_factor, &rope.long_factor})
    if (factors->size() != static_cast<size_t>(rot_dim / 2))
      throw file.error(factors == &rope.short_factor ? "short_factor" : "long_factor", "{} elements: expected {}",
                       factors->size(), rot_dim / 2);
  const float factor = rope.factor.value_or(static_cast<float>(file.n_ctx) / static_cast<float>(rope.original_context));
  const float usual =
      factor <= 1 ? 1.0f : std::sqrt(1 + std::log(factor) / std::log(static_cast<float>(rope.original_context)));
  scaling.magnitude = rope.attention_factor.value_or(usual);
  return scaling;
}

RopeScaling rope_scaling_of(const HfConfig& file, int rot_dim) {
  const HfRope& rope = file.rope;
  RopeScaling scaling{.factor = rope.factor.value_or(1.0f), .original_context = rope.original_context};
  if (rope.kind == "default" || rope.alpha > 0) return {};
  if (rope.kind == "longrope") return long_rope(file, rot_dim);
  if (rope.kind == "linear") {
    scaling.kind = RopeScalingKind::kLinear;
  } else if (rope.kind == "dynamic") {
    scaling.kind = RopeScalingKind::kDynamic;
  } else if (rope.kind == "llama3") {
    scaling.kind = RopeScalingKind::kLlama3;
    scaling.low_freq_factor = rope.low_freq_factor.value();
    scaling.high_freq_factor = rope.high_freq_factor.value();
    if (scaling.high_freq_factor <= scaling.low_freq_factor)
      throw file.error("high_freq_factor", "{} is not above low_freq_factor {}", scaling.high_freq_factor,
                       scaling.low_freq_factor);
  } else if (rope.kind == "yarn") {
    scaling.kind = RopeScalingKind::kYarn;
    scaling.factor = rope.factor.value_or(static_cast<float>(file.n_ctx) / static_cast<float>(rope.original_context));
    scaling.beta_fast = rope.beta_fast.value_or(scaling.beta_fast);
    scaling.beta_slow = rope.beta_slow.value_or(scaling.beta_slow);
    scaling.truncate = rope.truncate;
    scaling.magnitude = yarn_magnitude(rope, scaling.factor);
  } else if (rope.kind == "proportional") {
    scaling.kind = RopeScalingKind::kProportional;
    scaling.n_rotated = static_cast<int>(rope.partial_rotary_factor * static_cast<float>(rot_dim) / 2 + 1e-4f);
  } else {
    throw file.error("rope_type",
                     "'{}' is not supported: supported are default, linear, dynamic, llama3, yarn, longrope and "
                     "proportional",
                     printable(rope.kind, 64));
  }
  return scaling;
}

bool has_experts(const HfConfig& file, int layer);

// True if a layer has the window. The file's list decides, or else the file's or the architecture's period. Without
// either, all layers have the window; with hf_window_opt_in, only the layers from max_window_layers on have it, and
// only if the file switches it on.
bool has_window(const HfConfig& file, const Arch& arch, int layer) {
  if (!file.layer_types.empty()) return file.layer_types[layer] == "sliding_attention";
  if (arch.first_is_global && !arch.encoder) return false;  // such files list the layers
  const int period = file.sliding_window_pattern > 0 ? file.sliding_window_pattern : arch.window_period;
  if (period > 0) return arch.has_window(layer, period);
  if (arch.hf_window_opt_in) return file.use_sliding_window && layer >= file.max_window_layers.value_or(0);
  return true;
}

bool has_rope(const HfConfig& file, const Arch& arch, int layer) {
  if (arch.learned_positions || file.rope.is_off) return false;
  if (arch.rope_opt_in && file.text_or("position_embedding_type", "") != "rope") return false;
  if (const std::vector<float> thetas = file.numbers("layer_rope_theta"); !thetas.empty())
    return thetas[static_cast<size_t>(layer)] > 0;
  if (arch.rope_needs_window && file.sliding_window > 0)
    return has_window(file, arch, layer) ||
           (!has_experts(file, layer) && file.integer_or("prefix_dense_sliding_window_pattern", 0, 0, 1024) == 1);
  if (!file.layer_has_rope.empty()) return file.layer_has_rope[layer];
  const int period = file.no_rope_interval > 0 ? file.no_rope_interval : arch.no_rope_period;
  return arch.no_rope_period == 0 || (layer + 1) % period != 0;
}

bool has_experts(const HfConfig& file, int layer) {
  if (file.n_experts == 0 || layer < file.first_k_dense) return false;
  if (const std::vector<float> listed = file.numbers("moe_layers"); !listed.empty())
    return std::ranges::count(listed, static_cast<float>(layer)) > 0;
  if (const int period = file.integer_or("expert_layer_period", 0, 1, 1024); period > 0)
    return layer % period == file.integer_or("expert_layer_offset", 0, 0, period - 1);
  if (const int last = file.integer_or("moe_layer_end_index", -1, -1, 1024); last >= 0 && layer > last) return false;
  if (std::count(file.mlp_only_layers.begin(), file.mlp_only_layers.end(), layer) > 0) return false;
  return file.decoder_sparse_step > 0 && (layer + 1) % file.decoder_sparse_step == 0;
}

bool is_one_of(std::string_view name, std::string_view names) {
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find('|', begin), names.size());
    if (name == names.substr(begin, end - begin)) return true;
    begin = end + 1;
  }
  return false;
}

// The mixer of a layer, where it is not the architecture's: the file's list decides, or else the file's period, in
// which the last layer has attention. Null: the architecture's. With Arch::one_part, the only part.
const PartKind* listed_mixer(const HfConfig& file, const Arch& arch, int layer) {
  const PartKind *kv = kv_mixer(arch), *states = state_mixer(arch);
  if (file.layer_types.empty()) {
    if (states == nullptr || kv == nullptr || file.full_attention_interval == 0) return nullptr;
    return (layer + 1) % file.full_attention_interval != 0 ? states : kv;
  }
  const std::string& type = file.layer_types[static_cast<size_t>(layer)];
  if (type == "full_attention" || type == "sliding_attention" || type == "attention") return kv;
  if (type == "chunked_attention" && arch.scales_expert_input) return kv;  // Llama 4: set_family_facts()
  bool is_known = false;
  for (const PartKind* kind : all_kinds()) {
    if (!is_one_of(type, kind->hf_layer_type) || !(kind->is_mixer || arch.one_part)) continue;
    if (arch_has(arch, *kind)) return kind;
    is_known = true;
  }
  if (is_known) throw file.error("layer_types", "models of type '{}' have no {}", arch.hf_name, type);
  std::string known = "full_attention, sliding_attention";
  for (const PartKind* kind : all_kinds())
    if (*kind->hf_layer_type != 0 && (kind->is_mixer || arch.one_part))
      known += std::string(", ") + kind->hf_layer_type;
  throw file.error("layer_types", "layers of type '{}' are not supported: supported are {}", printable(type, 64),
                   known);
}

// The layers with their heads -> with their windows, ropes and parts.
std::vector<LayerConfig> layers_of(const HfConfig& file, const Config& c) {
  std::vector<LayerConfig> layers = c.layers;
  // If is_causal is false, sliding_window counts the other tokens on each side, without the token itself.
  const bool is_half = c.bidirectional && !c.arch->bidirectional && file.sliding_window > 0;
  const int window = layer_window(*c.arch, file.sliding_window) + (is_half ? 1 : 0);
  for (int i = 0; i < file.n_layers; ++i) {
    const bool windowed = has_window(file, *c.arch, i);
    if (windowed && file.sliding_window == 0 && !file.layer_types.empty())
      throw file.error("sliding_window", "is missing, and layer_types has sliding_attention");
    if (windowed) layers[i].window = window;
    if (windowed && c.local_theta > 0) layers[i].rope = LayerRope::kLocal;
    if (!has_rope(file, *c.arch, i)) layers[i].rope = LayerRope::kNone;
    layers[i].parts = arch_parts(*c.arch, i, has_experts(file, i));
    const PartKind* listed = listed_mixer(file, *c.arch, i);
    if (c.arch->one_part && listed == nullptr) throw file.error("layers_block_type", "is missing");
    if (c.arch->one_part) {
      layers[i].parts = {{.kind = listed}};
    } else if (listed != nullptr) {
      set_mixer(layers[i], *listed);
    }
  }
  return layers;
}

// Of the layers that the file lists, if each layer is one part.
bool lists_experts(const HfConfig& file) { return std::ranges::count(file.layer_types, "moe") > 0; }

ExpertConfig experts_of(const HfConfig& file, const Arch& arch) {
  ExpertConfig e{.n = file.n_experts, .n_used = file.n_experts_used};
  if (e.n == 0 || (arch.one_part && !lists_experts(file))) return {};
  e.latent_dim = file.integer_or("moe_latent_size", 0, 1, 1 << 20);
  e.ffn_dim = file.expert_dim > 0 ? file.expert_dim : file.ffn_dim;
  e.shared_dim = file.shared_expert_dim > 0 ? file.shared_expert_dim : file.n_shared_experts * e.ffn_dim;
  e.normalize = file.norm_topk_prob.value_or(arch.normalizes_experts);
  e.scale = file.routed_scaling;
  e.scoring = arch.scoring;
  if (const std::string router = file.text_or("expert_selection_fn", ""); router == "sigmoid") {
    e.scoring = Scoring::kSigmoid;
  } else if (router == "softmax") {
    e.normalize = true;  // softmax over the chosen
  } else if (!router.empty()) {
    throw file.error("expert_selection_fn", "'{}' is not supported: supported are softmax and sigmoid",
                     printable(router, 64));
  }
  if (const std::string sum = file.text_or("shared_expert_combination_strategy", "sum"); sum == "average") {
    if (e.shared_dim > 0) e.scale = e.scale / 2, e.shared_scale = 0.5f;
  } else if (sum != "sum") {
    throw file.error("shared_expert_combination_strategy", "'{}' is not supported: supported are sum and average",
                     printable(sum, 64));
  }
  if (file.positive_or("moe_router_logit_softcapping", 0) > 0)
    throw file.error("moe_router_logit_softcapping", "is above 0, which is not supported");
  if (file.flag_or("moe_apply_router_weight_on_input", false))
    throw file.error("moe_apply_router_weight_on_input", "is true, which is not supported");
  e.n_groups = file.topk_method == "greedy" ? 1 : file.n_groups;
  e.n_groups_used = file.n_groups_used > 0 ? std::min(file.n_groups_used, e.n_groups) : e.n_groups;
  if (e.n % e.n_groups != 0 || e.n_groups_used > e.n_groups || e.n / e.n_groups * e.n_groups_used < e.n_used)
    throw file.error("n_group", "{} groups, of which {} are used, do not fit {} experts", e.n_groups, e.n_groups_used,
                     e.n);
  return e;
}

void set_scales(const HfConfig& file, Config& c) {
  const auto or_one = [](float value) { return value > 0 ? value : 1.0f; };
  c.embedding_scale =
      or_one(file.embedding_multiplier) * usual_embedding_scale(c);
  c.residual_scale = or_one(file.residual_multiplier);
  c.logit_scale = 1.0f / or_one(file.logits_scaling);
  c.attention_scale = file.attention_multiplier;
  if (file.query_pre_attn_scalar > 0) c.attention_scale = 1.0f / std::sqrt(file.query_pre_attn_scalar);
  c.logit_scale *= file.positive_or("lm_head_multiplier", 1);
  if (c.arch->scales_logits) c.logit_scale = file.positive_or("logit_scale", file.positive_or("output_multiplier", 1));
  if (const float factor = file.positive_or("qk_scale_factor", 0); factor > 0)
    c.attention_scale = factor / std::sqrt(static_cast<float>(c.head_dim));
  c.attention_softcap = file.attn_softcap;
  c.logit_softcap = file.logit_softcap;
}

// Proportional rope has a frequency for each pair of a head, some of which are 0.
int rotated_dims(const HfConfig& file, const Arch& arch, int head_dim) {
  if (arch.learned_positions) return 0;
  const float partial = file.rope.partial_rotary_factor;
  const int rot_dim =
      file.rope.kind == "proportional" ? head_dim : static_cast<int>(static_cast<float>(head_dim) * partial);
  if (partial > 1 || rot_dim < 2 || rot_dim % 2 != 0)
    throw file.error("partial_rotary_factor", "{} of head_dim {} is not an even number of dimensions up to head_dim",
                     partial, head_dim);
  return rot_dim;
}

// The heads of a layer, by the file's list. Without a list, layers without a window may have larger heads than the
// others, and fewer of them for keys.
LayerHeads heads_of(const HfConfig& file, const Arch& arch, int layer) {
  LayerHeads heads{file.n_heads, file.n_kv_heads, file.head_dim};
  if (!file.of_layers.empty()) {
    const HfLayer& own = file.of_layers[static_cast<size_t>(layer)];
    if (own.n_heads > 0) heads.n_heads = own.n_heads;
    if (own.n_kv_heads > 0) heads.n_kv_heads = own.n_kv_heads;
    if (own.head_dim > 0) heads.head_dim = own.head_dim;
  } else if (!has_window(file, arch, layer)) {
    heads.head_dim = file.integer_or("global_head_dim", heads.head_dim, 2, 1024);
    if (file.flag_or("attention_k_eq_v", false))
      heads.n_kv_heads = file.integer_or("num_global_key_value_heads", heads.n_kv_heads, 1, heads.n_heads);
  }
  if (heads.n_heads % heads.n_kv_heads != 0)
    throw file.error("num_attention_heads", "{} of layer {} is not a multiple of num_key_value_heads {}",
                     heads.n_heads, layer, heads.n_kv_heads);
  return heads;
}

// The heads of the model are those of the last layer without a window. Other layers have theirs in c.layers.
void set_heads(const HfConfig& file, Config& c) {
  const auto has = [&](int i) { return has_window(file, *c.arch, i) && file.sliding_window > 0; };
  int main = file.n_layers - 1;
  while (main > 0 && has(main)) --main;
  if (has(main)) main = file.n_layers - 1;
  const LayerHeads own = heads_of(file, *c.arch, main);
  c.n_heads = own.n_heads, c.n_kv_heads = own.n_kv_heads, c.head_dim = own.head_dim;
  int narrow = 0;
  c.layers.resize(static_cast<size_t>(file.n_layers));
  for (int i = 0; i < file.n_layers; ++i) {
    const LayerHeads heads = heads_of(file, *c.arch, i);
    if (heads != own) c.layers[i].heads = heads;
    if (!file.of_layers.empty()) c.layers[i].ffn_dim = file.of_layers[static_cast<size_t>(i)].ffn_dim;
    if (has(i) && narrow == 0) narrow = heads.head_dim;
    if (heads.head_dim != (has(i) ? narrow : own.head_dim))
      throw file.error("head_dim", "{} of layer {} differs from {} of layers of the same type: not supported",
                       heads.head_dim, i, has(i) ? narrow : own.head_dim);
  }
  if (narrow == 0) return;
  const float partial = file.rope.local_partial > 0 ? file.rope.local_partial : file.rope.partial_rotary_factor;
  c.local_rot_dim = static_cast<int>(static_cast<float>(narrow) * partial);
  if (c.local_rot_dim < 2 || c.local_rot_dim % 2 != 0 || c.local_rot_dim > narrow)
    throw file.error("partial_rotary_factor", "{} of head_dim {} is not an even number of dimensions up to head_dim",
                     partial, narrow);
}

// Falcon-H1's. A bias is not multiplied, so projections have none.
void set_multipliers(const HfConfig& file, Config& c) {
  if (!file.has("mlp_multipliers") && !file.has("ssm_in_multiplier")) return;
  for (const char* key : {"projectors_bias", "mlp_bias", "attention_bias"})
    if (file.flag_or(key, file.attention_bias && std::string_view(key) == "attention_bias"))
      throw file.error(key, "is true, which is not supported for models of type '{}'", c.arch->hf_name);
  Multipliers m{.are_folded = true,
                .attention_in = file.factor_or("attention_in_multiplier", 1),
                .attention_out = file.factor_or("attention_out_multiplier", 1),
                .key = file.factor_or("key_multiplier", 1),
                .ssm_in = file.factor_or("ssm_in_multiplier", 1),
                .ssm_out = file.factor_or("ssm_out_multiplier", 1)};
  const std::vector<float> mlp = file.factors("mlp_multipliers", 2),
                           columns = file.factors("ssm_multipliers", m.ssm_columns.size());
  m.gate = mlp[0], m.down = mlp[1];
  std::ranges::copy(columns, m.ssm_columns.begin());
  c.parts.set(m);
}

// Factors of queries by their position: Mistral's of all layers, Llama 4's of layers without rope.
void set_query_scale(const HfConfig& file, Config& c) {
  if (file.rope.query_beta > 0) c.query_scale = {.beta = file.rope.query_beta, .period = file.rope.original_context};
  if (!file.flag_or("attn_temperature_tuning", false)) return;
  c.query_scale = {.beta = file.positive_or("attn_scale", 0.1f),
                   .period = file.integer_or("floor_scale", 8192, 1, 1 << 30),
                   .offset = 1};
}

// Facts that only some families state.
void set_family_facts(const HfConfig& file, Config& c) {
  set_query_scale(file, c);
  set_multipliers(file, c);
  if (file.n_experts == 0 && file.shared_expert_dim > 0 && !c.arch->one_part)
    c.ffn_dim = file.shared_expert_dim;  // Granite's shared_mlp
  c.scales_without_rope = c.arch->scales_expert_input;
  if (c.arch->norm_by_eps) c.norm_kind = file.has_rms_eps ? NormKind::kRms : NormKind::kLayer;
  c.post_norm_eps = file.positive_or("post_norm_eps", 0);
  if (!file.flag_or("use_qk_norm", true)) c.norms_heads = false;
  const std::string gating = file.text_or("gating", "");
  c.gates_heads = (c.arch->softplus_gate || file.has("use_attention_gate")) && (gating.empty() || gating == "per-head");
  for (const char* key : {"use_attention_gate", "use_sandwich_norm"})
    if (!file.flag_or(key, true)) throw file.error(key, "is false, which is not supported");
  c.ffn_dim = file.integer_or("prefix_dense_intermediate_size",
                              file.integer_or("intermediate_size_mlp", c.ffn_dim, 1, 1 << 24), 1, 1 << 24);
  if (file.rope.alpha > 0 && file.rope.kind == "dynamic") {
    const auto n = static_cast<float>(c.head_dim);
    c.rope_theta *= std::pow(file.rope.alpha, n / (n - 2));
  }
  // Within a chunk, attention sees all earlier tokens. Longer contexts are not supported.
  if (const int chunk = file.integer_or("attention_chunk_size", 0, 1, 1 << 30); chunk > 0)
    c.n_ctx_train = std::min(c.n_ctx_train, chunk);
  const std::vector<float> thetas = file.numbers("layer_rope_theta");
  if (!thetas.empty() && thetas.size() != static_cast<size_t>(c.n_layers))
    throw file.error("layer_rope_theta", "{} elements for {} layers", thetas.size(), c.n_layers);
  float base = 0;  // of the layers with rope
  for (const float theta : thetas) {
    if (theta > 0 && base > 0 && theta != base)
      throw file.error("layer_rope_theta", "{} and {}: layers with different bases are not supported", base, theta);
    if (theta > 0) base = theta;
  }
  if (base > 0) c.rope_theta = base;
}

// The last layers may read the keys of the last layer of their kind that has its own, and have wider feed-forwards.
void share_keys(const HfConfig& file, Config& c) {
  const int n_shared = file.integer_or("num_kv_shared_layers", 0, 0, c.n_layers - 1), first = c.n_layers - n_shared;
  const bool is_wide = file.flag_or("use_double_wide_mlp", false);
  for (int i = first; i < c.n_layers; ++i) {
    c.layers[i].kv_layer = last_of_kind(c, i, first);
    if (c.layers[i].kv_layer < 0)
      throw file.error("num_kv_shared_layers", "{}: layer {} has no earlier layer of its kind whose keys it can read",
                       n_shared, i);
    if (is_wide) c.layers[i].ffn_dim = 2 * c.ffn_dim;
  }
}

// In tables of positions, RoBERTa has rows for padding before the row of position 0.
void set_positions(const HfConfig& file, Config& c) {
  c.n_token_types = file.n_token_types;
  if (c.arch->positions_after_pad) c.first_position = file.pad_id + 1;
  c.n_ctx_train = file.n_ctx - c.first_position;
  if (c.n_ctx_train < 1)
    throw file.error("max_position_embeddings", "{} is out of range: expected more than {} rows for padding",
                     file.n_ctx, c.first_position);
}

}  // namespace

HfConfig read_hf_config_of(const HfDirectory& directory) { return read_hf_config(directory, hf_defaults_of); }

Config config_from_hf(const HfConfig& file) {
  Config c;
  try {
    c.arch = &find_hf_arch(file.model_type, file.bidirectional, lists_experts(file));
  } catch (const Error& error) {
    throw file.error("model_type", "{}", error.what());
  }
  c.activation = activation_of(file, *c.arch);
  c.bidirectional = c.arch->bidirectional || !file.causal;
  c.name = file.name;
  c.n_layers = file.n_layers;
  c.dim = file.dim;
  set_heads(file, c);
  c.ffn_dim = file.ffn_dim;
  c.n_vocab = file.n_vocab;
  set_positions(file, c);
  c.norm_eps = file.norm_eps;
  c.rot_dim = rotated_dims(file, *c.arch, c.head_dim);
  if (const auto& sections = file.rope.sections; !sections.empty()) {  // of images; text has equal positions
    if (const int sum = std::accumulate(sections.begin(), sections.end(), 0); sum != c.rot_dim / 2)
      throw file.error("mrope_section", "adds up to {}: expected {}, half of the {} rotated dimensions", sum,
                       c.rot_dim / 2, c.rot_dim);
    if (sections.size() <= 4) c.parts.set(RopeSections{sections});
  }
  if (kv_mixer(*c.arch) == nullptr) c.n_heads = c.n_kv_heads = c.head_dim = 1, c.rot_dim = 0;  // as in GGUF files
  c.rope_theta = file.rope.theta;
  c.rope_scaling = rope_scaling_of(file, c.rot_dim);
  c.rope_layout = c.arch->hf_rope;
  if (c.arch->local_theta != 0 && file.sliding_window > 0)
    c.local_theta = file.rope.local_theta > 0           ? file.rope.local_theta
                    : c.arch->local_theta == kSameTheta ? c.rope_theta
                                                        : c.arch->local_theta;
  set_family_facts(file, c);
  c.experts = experts_of(file, *c.arch);
  if (c.local_rot_dim == c.rot_dim) c.local_rot_dim = 0;
  c.layers = layers_of(file, c);
  share_keys(file, c);
  for (const LayerConfig& layer : c.layers) c.sliding_window = std::max(c.sliding_window, layer.window);
  set_scales(file, c);
  for (const PartKind* kind : all_kinds())
    if (kind->read_hf != nullptr && arch_has(*c.arch, *kind)) kind->read_hf(file, c);
  c.attention_bias = file.attention_bias;
  c.tied_output = file.tied_output.value_or(false);
  return c;
}

}  // namespace ingot
