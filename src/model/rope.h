// Rotary frequencies of a model, with the scaling that its checkpoint asks for.
#pragma once
#include <string>
#include <vector>

namespace ingot {

enum class RopeScalingKind { kNone, kLinear, kYarn, kLlama3, kLongRope, kDynamic };

struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  float factor = 1.0f;
  int original_context = 0;  // tokens; all but linear
  float beta_fast = 32.0f;   // YaRN, as are the three below
  float beta_slow = 1.0f;
  bool truncate = true;          // the ramp begins and ends at whole dimensions
  float magnitude = 1.0f;        // multiplies cos and sin; YaRN recommends 1 + 0.1 ln(factor)
  float low_freq_factor = 1.0f;  // Llama 3
  float high_freq_factor = 4.0f;
  std::vector<float> short_factors, long_factors;  // [rot_dim / 2] LongRoPE; empty: tensors of the file
};

// inv_freq[i] = theta^(-2i / rot_dim), scaled: linear (arXiv:2306.15595), YaRN (arXiv:2309.00071, with the rounding of
// Hugging Face's _compute_yarn_parameters), Llama 3 (its _compute_llama3_parameters: wavelengths below original_context
// / high_freq_factor stay, those above original_context / low_freq_factor are divided by factor, a ramp between),
// dynamic NTK (its _compute_dynamic_ntk_parameters for sequences of n_ctx). `divisors` [rot_dim / 2], when not empty,
// divide the frequencies (the rope_freqs tensor in which GGUF files keep Llama 3's scaling, and LongRoPE's factors).
// Returns [rot_dim / 2], radians a position. n_ctx is the longest that a sequence may get: transformers goes by how
// long each is, but keys that are in the cache cannot turn.
std::vector<float> rope_frequencies(int rot_dim, float theta, const RopeScaling& scaling,
                                    const std::vector<float>& divisors, int n_ctx = 0);

}  // namespace ingot
