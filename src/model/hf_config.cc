// Config from a Hugging Face config.json (config.cc has the GGUF side): what the file says, seen through the architecture's
// row. Whatever would change the numbers and is not computed here is refused by name.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "io/hf_config.h"
#include "model/config.h"

namespace ingot {
namespace {

struct ActivationName {
  const char* name;
  Activation activation;
};
constexpr ActivationName kActivations[] = {{"silu", Activation::kSilu},
                                           {"swish", Activation::kSilu},
                                           {"gelu", Activation::kGelu},
                                           {"gelu_pytorch_tanh", Activation::kGeluTanh},
                                           {"gelu_new", Activation::kGeluTanh}};

void check_activation(const HfConfig& file, const Arch& arch) {
  for (const ActivationName& row : kActivations)
    if (file.hidden_act == row.name && arch.activation == row.activation) return;
  throw file.error("hidden_act", "'{}' is not supported for models of type '{}'", printable(file.hidden_act, 64), arch.hf_name);
}

// What cos and sin are multiplied with (Hugging Face's _compute_yarn_parameters).
float yarn_magnitude(const HfRope& rope, float factor) {
  auto magnitude = [&](float mscale) { return factor <= 1 ? 1.0f : 0.1f * mscale * std::log(factor) + 1.0f; };
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.mscale && rope.mscale_all_dim) return magnitude(*rope.mscale) / magnitude(*rope.mscale_all_dim);
  return magnitude(1);
}

RopeScaling rope_scaling_of(const HfConfig& file) {
  const HfRope& rope = file.rope;
  RopeScaling scaling{.factor = rope.factor.value_or(1.0f), .original_context = rope.original_context};
  if (rope.kind == "default") return {};
  if (rope.kind == "linear") {
    scaling.kind = RopeScalingKind::kLinear;
  } else if (rope.kind == "llama3") {
    scaling.kind = RopeScalingKind::kLlama3;
    scaling.low_freq_factor = rope.low_freq_factor.value();
    scaling.high_freq_factor = rope.high_freq_factor.value();
    if (scaling.high_freq_factor <= scaling.low_freq_factor)
      throw file.error("high_freq_factor", "{} is not above low_freq_factor {}", scaling.high_freq_factor, scaling.low_freq_factor);
  } else if (rope.kind == "yarn") {
    scaling.kind = RopeScalingKind::kYarn;
    scaling.factor = rope.factor.value_or(static_cast<float>(file.n_ctx) / static_cast<float>(rope.original_context));
    scaling.beta_fast = rope.beta_fast.value_or(scaling.beta_fast);
    scaling.beta_slow = rope.beta_slow.value_or(scaling.beta_slow);
    scaling.truncate = rope.truncate;
    scaling.magnitude = yarn_magnitude(rope, scaling.factor);
  } else {
    throw file.error("rope_type", "'{}' is not supported: supported are default, linear, llama3 and yarn", printable(rope.kind, 64));
  }
  return scaling;
}

// The window that all layers share. The layers' own types say it where the file has them; in files without, all layers from
// max_window_layers on have it where the architecture's files switch it on.
int window_of(const HfConfig& file, const Arch& arch) {
  int n_windowed = file.n_layers;
  if (!file.layer_types.empty()) {
    n_windowed = static_cast<int>(std::count(file.layer_types.begin(), file.layer_types.end(), "sliding_attention"));
  } else if (arch.hf_window_opt_in) {
    n_windowed = file.use_sliding_window ? file.n_layers - std::min(file.n_layers, file.max_window_layers.value_or(0)) : 0;
  }
  if (n_windowed == 0 || (file.sliding_window == 0 && file.layer_types.empty())) return 0;
  if (n_windowed != file.n_layers)
    throw file.error("sliding_window", "only {} of {} layers have it: layers of two kinds are not supported", n_windowed, file.n_layers);
  if (file.sliding_window == 0) throw file.error("sliding_window", "is missing, and layer_types has sliding_attention");
  return file.sliding_window;
}

int rotated_dims(const HfConfig& file) {
  const int rot_dim = static_cast<int>(static_cast<float>(file.head_dim) * file.rope.partial_rotary_factor);
  if (file.rope.partial_rotary_factor > 1 || rot_dim < 2 || rot_dim % 2 != 0)
    throw file.error("partial_rotary_factor", "{} of head_dim {} is not an even number of dimensions up to head_dim",
                     file.rope.partial_rotary_factor, file.head_dim);
  return rot_dim;
}

}  // namespace

Config config_from_hf(const HfConfig& file) {
  Config c;
  try {
    c.arch = &find_hf_arch(file.model_type);
  } catch (const Error& error) {
    throw file.error("model_type", "{}", error.what());
  }
  check_activation(file, *c.arch);
  c.name = file.name;
  c.n_layers = file.n_layers;
  c.dim = file.dim;
  c.n_heads = file.n_heads;
  c.n_kv_heads = file.n_kv_heads;
  c.head_dim = file.head_dim;
  c.ffn_dim = file.ffn_dim;
  c.n_vocab = file.n_vocab;
  c.n_ctx_train = file.n_ctx;
  c.norm_eps = file.norm_eps;
  c.rot_dim = rotated_dims(file);
  c.rope_theta = file.rope.theta;
  c.rope_scaling = rope_scaling_of(file);
  c.rope_layout = c.arch->hf_rope;
  c.sliding_window = window_of(file, *c.arch);
  c.tied_output = file.tied_output.value_or(false);
  return c;
}

}  // namespace ingot
