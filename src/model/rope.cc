#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace ingot {
namespace {

// The dimension whose frequency turns n_rotations times within the original context (YaRN, section 3.2).
double correction_dim(double n_rotations, int rot_dim, double theta, int context) {
  return rot_dim * std::log(context / (n_rotations * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

// Share of interpolation of each frequency: 0 for the fast ones, 1 for the slow ones, a ramp between.
std::vector<float> yarn_ramp(int rot_dim, float theta, const RopeScaling& s) {
  const double low = std::max(0.0, std::floor(correction_dim(s.beta_fast, rot_dim, theta, s.original_context)));
  double high = std::min(rot_dim - 1.0, std::ceil(correction_dim(s.beta_slow, rot_dim, theta, s.original_context)));
  if (low == high) high += 0.001;
  std::vector<float> ramp(rot_dim / 2);
  for (size_t i = 0; i < ramp.size(); ++i)
    ramp[i] = static_cast<float>(std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0));
  return ramp;
}

}  // namespace

std::vector<float> rope_frequencies(int rot_dim, float theta, const RopeScaling& s, const std::vector<float>& divisors) {
  CHECK(divisors.empty() || static_cast<int>(divisors.size()) == rot_dim / 2);
  std::vector<float> inv_freq(rot_dim / 2);
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    inv_freq[i] = 1.0f / std::pow(theta, 2.0f * static_cast<float>(i) / static_cast<float>(rot_dim));
    if (!divisors.empty()) inv_freq[i] /= divisors[i];
  }
  if (s.kind == RopeScalingKind::kLinear) {
    for (float& f : inv_freq) f /= s.factor;
  } else if (s.kind == RopeScalingKind::kYarn) {
    const std::vector<float> ramp = yarn_ramp(rot_dim, theta, s);
    for (size_t i = 0; i < ramp.size(); ++i) inv_freq[i] *= ramp[i] / s.factor + (1.0f - ramp[i]);
  }
  return inv_freq;
}

}  // namespace ingot
