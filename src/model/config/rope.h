// Rotary frequencies of a model, with the scaling that the checkpoint states.
#pragma once
#include <string>
#include <vector>

namespace ingot {

enum class RopeScalingKind { kNone, kLinear, kYarn, kLlama3, kLongRope, kDynamic, kProportional };

struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  float factor = 1.0f;
  int original_context = 0;  // tokens; all kinds but linear use it
  float beta_fast = 32.0f;   // YaRN, like the four below
  float beta_slow = 1.0f;
  float extrapolation = 1.0f;    // the share of fast frequencies that does not change; with 0 all are interpolated
  bool truncate = true;          // the ramp begins and ends at whole dimensions
  float magnitude = 1.0f;        // multiplies cos and sin; YaRN recommends 1 + 0.1 ln(factor)
  float log_stretch = 0;         // scores are multiplied by (1 + log_stretch * ln(factor))^2
  float low_freq_factor = 1.0f;  // Llama 3
  float high_freq_factor = 4.0f;
  int n_rotated = 0;  // proportional: the frequencies that rotate, from the first on; the others are 0
  std::vector<float> short_factors, long_factors;  // LongRoPE, [rot_dim / 2]; empty: the file has them as tensors
};

// YaRN's factor on cos and sin, 1 + 0.1 ln(factor), as llama.cpp applies it: only if some frequencies are extrapolated.
float yarn_magnitude(float factor, float extrapolation);

// inv_freq[i] = theta^(-2i / rot_dim), scaled by one of these methods:
//   linear       arXiv:2306.15595
//   YaRN         arXiv:2309.00071, rounded as in Hugging Face's _compute_yarn_parameters
//   Llama 3      Hugging Face's _compute_llama3_parameters: frequencies whose wavelength is below original_context /
//                high_freq_factor do not change, those with a wavelength above original_context / low_freq_factor are
//                divided by factor, with a ramp between
//   dynamic NTK  Hugging Face's _compute_dynamic_ntk_parameters for sequences of n_ctx
//   proportional Hugging Face's _compute_proportional_rope_parameters: only the first frequencies rotate
// `divisors` [rot_dim / 2], if not empty, divide the frequencies: the rope_freqs tensor of GGUF files (Llama 3's
// scaling), or LongRoPE's factors. Returns [rot_dim / 2], radians a position. n_ctx is the longest possible sequence;
// transformers uses the length of each sequence instead, but keys in the cache cannot be rotated again.
std::vector<float> rope_frequencies(int rot_dim, float theta, const RopeScaling& scaling,
                                    const std::vector<float>& divisors, int n_ctx = 0);

}  // namespace ingot
