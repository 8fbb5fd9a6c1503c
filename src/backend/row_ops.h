// The bodies of ops that only some families need, for one row in host memory: those of ref, and with threads those of
// cpu.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "backend/ops.h"

namespace ingot {

inline void scale_row(float* x, int64_t n, float factor) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

inline float position_factor(const PositionScale& s, int32_t position) {
  return 1.0f +
         s.beta * std::log(1.0f + std::floor(static_cast<float>(position + s.offset) / static_cast<float>(s.period)));
}

inline void scale_groups_of_row(float* x, int64_t n, const float* factors, int64_t n_groups, bool softplus) {
  const int64_t size = n / n_groups;
  for (int64_t g = 0; g < n_groups; ++g)
    scale_row(x + g * size, size,
              softplus ? std::max(factors[g], 0.0f) + std::log1p(std::exp(-std::fabs(factors[g]))) : factors[g]);
}

inline void xielu_row(float* x, int64_t n, const Xielu& a) {
  for (int64_t i = 0; i < n; ++i)
    x[i] = (x[i] > 0 ? a.plus * x[i] * x[i] : a.minus * (std::expm1(std::min(x[i], a.eps)) - x[i])) + a.beta * x[i];
}

}  // namespace ingot
