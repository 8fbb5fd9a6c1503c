// Config from a Hugging Face config.json (config.cc reads GGUF): the file's values, completed by the architecture's
// row. A variant that would change the results and is not implemented is refused by name.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "io/huggingface/config.h"
#include "model/config/kind.h"

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
  if (rope.kind == "default") return {};
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
  } else {
    throw file.error("rope_type",
                     "'{}' is not supported: supported are default, linear, dynamic, llama3, yarn and longrope",
                     printable(rope.kind, 64));
  }
  return scaling;
}

// True if a layer has the window. The file's list decides, or else the file's or the architecture's period. Without
// either, all layers have the window; with hf_window_opt_in, only the layers from max_window_layers on have it, and
// only if the file switches it on.
bool has_window(const HfConfig& file, const Arch& arch, int layer) {
  if (!file.layer_types.empty()) return file.layer_types[layer] == "sliding_attention";
  const int period = file.sliding_window_pattern > 0 ? file.sliding_window_pattern : arch.window_period;
  if (period > 0) return arch.has_window(layer, period);
  if (arch.hf_window_opt_in) return file.use_sliding_window && layer >= file.max_window_layers.value_or(0);
  return true;
}

bool has_rope(const HfConfig& file, const Arch& arch, int layer) {
  if (arch.learned_positions) return false;
  if (arch.rope_needs_window && file.sliding_window > 0) return has_window(file, arch, layer);
  if (!file.layer_has_rope.empty()) return file.layer_has_rope[layer];
  const int period = file.no_rope_interval > 0 ? file.no_rope_interval : arch.no_rope_period;
  return arch.no_rope_period == 0 || (layer + 1) % period != 0;
}

bool has_experts(const HfConfig& file, int layer) {
  if (file.n_experts == 0 || layer < file.first_k_dense) return false;
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
// which the last layer has attention. Null: the architecture's.
const PartKind* listed_mixer(const HfConfig& file, const Arch& arch, int layer) {
  const PartKind *kv = kv_mixer(arch), *states = state_mixer(arch);
  if (file.layer_types.empty()) {
    if (states == nullptr || kv == nullptr || file.full_attention_interval == 0) return nullptr;
    return (layer + 1) % file.full_attention_interval != 0 ? states : kv;
  }
  const std::string& type = file.layer_types[static_cast<size_t>(layer)];
  if (type == "full_attention" || type == "sliding_attention" || type == "attention") return kv;
  bool is_known = false;
  for (const PartKind* kind : all_kinds()) {
    if (!is_one_of(type, kind->hf_layer_type)) continue;
    if (arch_has(arch, *kind)) return kind;
    is_known = true;
  }
  if (is_known) throw file.error("layer_types", "models of type '{}' have no {}", arch.hf_name, type);
  std::string known = "full_attention, sliding_attention";
  for (const PartKind* kind : all_kinds())
    if (*kind->hf_layer_type != 0) known += std::string(", ") + kind->hf_layer_type;
  throw file.error("layer_types", "layers of type '{}' are not supported: supported are {}", printable(type, 64),
                   known);
}

std::vector<LayerConfig> layers_of(const HfConfig& file, const Config& c) {
  std::vector<LayerConfig> layers(static_cast<size_t>(file.n_layers));
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
    if (const PartKind* mixer = listed_mixer(file, *c.arch, i)) set_mixer(layers[i], *mixer);
  }
  return layers;
}

ExpertConfig experts_of(const HfConfig& file, const Arch& arch) {
  ExpertConfig e{.n = file.n_experts, .n_used = file.n_experts_used};
  if (e.n == 0) return {};
  e.ffn_dim = file.expert_dim > 0 ? file.expert_dim : file.ffn_dim;
  e.shared_dim = file.shared_expert_dim > 0 ? file.shared_expert_dim : file.n_shared_experts * e.ffn_dim;
  e.normalize = file.norm_topk_prob.value_or(arch.normalizes_experts);
  e.scale = file.routed_scaling;
  e.scoring = arch.scoring;
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
      or_one(file.embedding_multiplier) * (c.arch->scales_embedding ? std::sqrt(static_cast<float>(c.dim)) : 1.0f);
  c.residual_scale = or_one(file.residual_multiplier);
  c.logit_scale = 1.0f / or_one(file.logits_scaling);
  c.attention_scale = file.attention_multiplier;
  if (file.query_pre_attn_scalar > 0) c.attention_scale = 1.0f / std::sqrt(file.query_pre_attn_scalar);
  c.attention_softcap = file.attn_softcap;
  c.logit_softcap = file.logit_softcap;
}

int rotated_dims(const HfConfig& file, const Arch& arch) {
  if (arch.learned_positions) return 0;
  const int rot_dim = static_cast<int>(static_cast<float>(file.head_dim) * file.rope.partial_rotary_factor);
  if (file.rope.partial_rotary_factor > 1 || rot_dim < 2 || rot_dim % 2 != 0)
    throw file.error("partial_rotary_factor", "{} of head_dim {} is not an even number of dimensions up to head_dim",
                     file.rope.partial_rotary_factor, file.head_dim);
  return rot_dim;
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
    c.arch = &find_hf_arch(file.model_type, file.bidirectional);
  } catch (const Error& error) {
    throw file.error("model_type", "{}", error.what());
  }
  c.activation = activation_of(file, *c.arch);
  c.bidirectional = c.arch->bidirectional || !file.causal;
  c.name = file.name;
  c.n_layers = file.n_layers;
  c.dim = file.dim;
  c.n_heads = file.n_heads;
  c.n_kv_heads = file.n_kv_heads;
  c.head_dim = file.head_dim;
  c.ffn_dim = file.ffn_dim;
  c.n_vocab = file.n_vocab;
  set_positions(file, c);
  c.norm_eps = file.norm_eps;
  c.rot_dim = rotated_dims(file, *c.arch);
  if (kv_mixer(*c.arch) == nullptr) c.n_heads = c.n_kv_heads = c.head_dim = 1, c.rot_dim = 0;  // as in GGUF files
  c.rope_theta = file.rope.theta;
  c.rope_scaling = rope_scaling_of(file, c.rot_dim);
  c.rope_layout = c.arch->hf_rope;
  if (c.arch->local_theta != 0 && file.sliding_window > 0)
    c.local_theta = file.rope.local_theta > 0           ? file.rope.local_theta
                    : c.arch->local_theta == kSameTheta ? c.rope_theta
                                                        : c.arch->local_theta;
  c.experts = experts_of(file, *c.arch);
  c.layers = layers_of(file, c);
  for (const LayerConfig& layer : c.layers) c.sliding_window = std::max(c.sliding_window, layer.window);
  set_scales(file, c);
  for (const PartKind* kind : all_kinds())
    if (kind->read_hf != nullptr && arch_has(*c.arch, *kind)) kind->read_hf(file, c);
  c.attention_bias = file.attention_bias;
  c.tied_output = file.tied_output.value_or(false);
  return c;
}

}  // namespace ingot
