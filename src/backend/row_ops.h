// The bodies of ops that only some families need, for one row in host memory: those of ref, and with threads those of
// cpu.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "backend/ops.h"

namespace ingot {

// The row of a token in a table of embeddings.
inline int32_t table_row(int32_t token, const Weight& table) { return token < table.n_out ? token : 0; }

inline void scale_row(float* x, int64_t n, float factor) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

inline float position_factor(const PositionScale& s, int32_t position) {
  return 1.0f +
         s.beta * std::log(1.0f + std::floor(static_cast<float>(position + s.offset) / static_cast<float>(s.period)));
}

inline float group_factor(float x, GroupFactor kind) {
  switch (kind) {
    case GroupFactor::kAsIs: return x;
    case GroupFactor::kSoftplus: return std::max(x, 0.0f) + std::log1p(std::exp(-std::fabs(x)));
    case GroupFactor::kSigmoid: return 1.0f / (1.0f + std::exp(-x));
  }
  return x;
}
inline void scale_groups_of_row(float* x, int64_t n, const float* factors, int64_t n_groups, GroupFactor kind) {
  const int64_t size = n / n_groups;
  for (int64_t g = 0; g < n_groups; ++g) scale_row(x + g * size, size, group_factor(factors[g], kind));
}

inline void xielu_row(float* x, int64_t n, const Xielu& a) {
  for (int64_t i = 0; i < n; ++i)
    x[i] = (x[i] > 0 ? a.plus * x[i] * x[i] : a.minus * (std::expm1(std::min(x[i], a.eps)) - x[i])) + a.beta * x[i];
}

inline double mean_square(const float* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double{x[i]} * x[i];
  return sum / static_cast<double>(n);
}

inline void match_size_of_row(float* y, const float* x, int64_t n) {
  const double own = std::max(mean_square(y, n), double{kLeastMeanSquare});
  scale_row(y, n, static_cast<float>(std::sqrt(mean_square(x, n) / own)));
}

// coefs: [m, m]; streams: [m - 1, n].
inline void mix_streams_of_row(float* x, float* streams, const float* coefs, int64_t m, int64_t n) {
  for (int64_t c = 0; c < n; ++c) {
    double old[kMaxStreams];
    for (int64_t j = 0; j < m; ++j) old[j] = j == 0 ? x[c] : streams[(j - 1) * n + c];
    for (int64_t i = 0; i < m; ++i) {
      double sum = old[i];
      for (int64_t j = 0; j < m; ++j) sum += coefs[i * m + j] * old[j];
      (i == 0 ? x[c] : streams[(i - 1) * n + c]) = static_cast<float>(sum);
    }
  }
}

// coefs: [m]; streams: [m - 1, n].
inline void correct_streams_of_row(float* x, const float* predicted, float* streams, const float* coefs, int64_t m,
                                   int64_t n) {
  for (int64_t c = 0; c < n; ++c) {
    const float change = x[c] - predicted[c];
    x[c] = predicted[c] + change * (1.0f + coefs[0]);
    for (int64_t i = 1; i < m; ++i) streams[(i - 1) * n + c] += change * (1.0f + coefs[i]);
  }
}

inline void keep_above_row(float* x, int64_t n, float deviations) {
  double mean = 0, squares = 0;
  for (int64_t i = 0; i < n; ++i) mean += x[i];
  mean /= static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const auto cut = static_cast<float>(mean + deviations * std::sqrt(squares / static_cast<double>(n)));
  for (int64_t i = 0; i < n; ++i) x[i] = std::max(x[i] - cut, 0.0f);
}

}  // namespace ingot
