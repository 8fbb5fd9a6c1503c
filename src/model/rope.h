// Rotary frequencies of a model, with the scaling that its checkpoint asks for.
#pragma once
#include <string>
#include <vector>

namespace ingot {

enum class RopeScalingKind { kNone, kLinear, kYarn, kLlama3 };

struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  float factor = 1.0f;
  int original_context = 0;      // tokens; YaRN and Llama 3
  float beta_fast = 32.0f;       // YaRN, as are the three below
  float beta_slow = 1.0f;
  bool truncate = true;          // the ramp begins and ends at whole dimensions
  float magnitude = 1.0f;        // multiplies cos and sin; YaRN recommends 1 + 0.1 ln(factor)
  float low_freq_factor = 1.0f;  // Llama 3
  float high_freq_factor = 4.0f;
};

// inv_freq[i] = theta^(-2i / rot_dim), scaled: linear (arXiv:2306.15595), YaRN (arXiv:2309.00071, with the rounding of
// Hugging Face's _compute_yarn_parameters), Llama 3 (its _compute_llama3_parameters: wavelengths below original_context /
// high_freq_factor stay, those above original_context / low_freq_factor are divided by factor, a ramp between). `divisors` [rot_dim / 2], when not empty, divide the frequencies (the
// rope_freqs tensor in which GGUF files keep Llama 3's scaling). Returns [rot_dim / 2], radians a position.
std::vector<float> rope_frequencies(int rot_dim, float theta, const RopeScaling& scaling, const std::vector<float>& divisors);

}  // namespace ingot
