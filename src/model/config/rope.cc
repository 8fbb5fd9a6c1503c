#include "model/config/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace ingot {
namespace {

// The dimension whose frequency makes n_rotations within the original context (YaRN, section 3.2).
double correction_dim(double n_rotations, int rot_dim, double theta, int context) {
  return rot_dim * std::log(context / (n_rotations * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

// The share of interpolation for each frequency: 0 for fast ones, 1 for slow ones, a ramp between.
std::vector<float> yarn_ramp(int rot_dim, float theta, const RopeScaling& s) {
  double low = correction_dim(s.beta_fast, rot_dim, theta, s.original_context);
  double high = correction_dim(s.beta_slow, rot_dim, theta, s.original_context);
  low = std::max(0.0, s.truncate ? std::floor(low) : low);
  high = std::min(rot_dim - 1.0, s.truncate ? std::ceil(high) : high);
  if (low == high) high += 0.001;
  std::vector<float> ramp(rot_dim / 2);
  for (size_t i = 0; i < ramp.size(); ++i)
    ramp[i] = static_cast<float>(std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0));
  return ramp;
}

float llama3_frequency(float inv_freq, const RopeScaling& s) {
  const double wavelength = 2 * std::numbers::pi / inv_freq;
  if (wavelength < s.original_context / s.high_freq_factor) return inv_freq;
  if (wavelength > s.original_context / s.low_freq_factor) return inv_freq / s.factor;
  const double smooth =
      (s.original_context / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return static_cast<float>((1 - smooth) * inv_freq / s.factor + smooth * inv_freq);
}

}  // namespace

float yarn_magnitude(float factor, float extrapolation) {
  return extrapolation > 0 ? 1.0f + 0.1f * std::log(std::max(1.0f, factor)) : 1.0f;
}

std::vector<float> rope_frequencies(int rot_dim, float theta, const RopeScaling& s, const std::vector<float>& divisors,
                                    int n_ctx) {
  if (s.kind == RopeScalingKind::kDynamic && n_ctx > s.original_context && rot_dim > 2) {
    const double grown = double{s.factor} * n_ctx / s.original_context - (s.factor - 1);
    theta = static_cast<float>(theta * std::pow(grown, rot_dim / (rot_dim - 2.0)));
  }
  CHECK(divisors.empty() || static_cast<int>(divisors.size()) == rot_dim / 2);
  std::vector<float> inv_freq(rot_dim / 2);
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    inv_freq[i] = 1.0f / std::pow(theta, 2.0f * static_cast<float>(i) / static_cast<float>(rot_dim));
    if (!divisors.empty()) inv_freq[i] /= divisors[i];
  }
  if (s.kind == RopeScalingKind::kLinear || s.kind == RopeScalingKind::kProportional) {
    for (float& f : inv_freq) f /= s.factor;
  } else if (s.kind == RopeScalingKind::kLlama3) {
    for (float& f : inv_freq) f = llama3_frequency(f, s);
  } else if (s.kind == RopeScalingKind::kYarn) {
    const std::vector<float> ramp = yarn_ramp(rot_dim, theta, s);
    for (size_t i = 0; i < ramp.size(); ++i) {
      const float kept = s.extrapolation * (1.0f - ramp[i]);
      inv_freq[i] *= (1.0f - kept) / s.factor + kept;
    }
  }
  if (s.kind == RopeScalingKind::kProportional)
    std::fill(inv_freq.begin() + s.n_rotated, inv_freq.end(), 0.0f);
  return inv_freq;
}

}  // namespace ingot
