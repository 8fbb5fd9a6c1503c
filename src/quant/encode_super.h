// Encodes blocks of 256 weights whose groups share a scale d (and a scale dmin for the minima). Each group multiplies d
// and dmin by its own small integers. First, each group is fitted separately. Then d is chosen so that d times integers
// comes close to these fits. Then two steps alternate until d and dmin no longer change, at most kRounds times: choose
// the integers and codes for the given d, and choose d for the given integers and codes. For encode.cc.
#pragma once
#include <limits>

#include "quant/fit.h"

namespace ingot::quant {

template <class T>
class SuperBlock {
 public:
  SuperBlock(const float* x, const float* w) : x_(x), w_(w) {}

  void encode(uint8_t* block) {
    if constexpr (T::has_min) {
      for (int g = 0; g < kGroups; ++g)
        affine_[g] = fit_affine<L, T::group>(x_ + g * T::group, w_ + g * T::group, true);
      start_with_min();
    } else {
      for (int g = 0; g < kGroups; ++g) scaled_[g] = fit_scale<L, T::group>(x_ + g * T::group, w_ + g * T::group);
      start_scaled();
    }
    State best = state_;
    best.error = std::numeric_limits<float>::infinity();
    for (int round = 0; round < kRounds; ++round) {
      choose_integers();
      if (state_.error < best.error) best = state_;
      const float d = state_.d, dmin = state_.dmin;
      choose_units();
      if (state_.d == d && state_.dmin == dmin) break;
    }
    uint8_t codes[T::block_size];
    for (int i = 0; i < T::block_size; ++i) codes[i] = L::code(best.levels[i]);
    T::pack(codes, best.s, best.m, best.d, best.dmin, block);
  }

 private:
  using L = Levels<T>;
  static constexpr int kGroups = T::block_size / T::group, kRounds = 4;
  static constexpr float kFirstUnit = -2, kLastUnit = 2, kUnitStep = 0.5f;  // as the steps in fit.h, for the integers

  struct State {
    float d = 0, dmin = 0, error = 0;
    int s[kGroups] = {}, m[kGroups] = {};
    float levels[T::block_size] = {};
  };

  static int nearest_integer(float value, float unit_inverse) {
    const float v =
        std::clamp(value * unit_inverse, static_cast<float>(T::lowest_scale), static_cast<float>(T::highest_scale));
    return static_cast<int>(std::lrintf(v));
  }

  // Tries one d for each step: the d that maps the largest scale to an integer near the end of the range. Keeps the d
  // whose integers fit all groups best.
  void start_scaled() {
    float extreme = 0, least = std::numeric_limits<float>::infinity();
    for (const ScaleFit& fit : scaled_) extreme = std::fabs(fit.scale) > std::fabs(extreme) ? fit.scale : extreme;
    for (const int edge : {T::lowest_scale, T::highest_scale}) {
      for (float step = kFirstUnit; step <= kLastUnit; step += kUnitStep) {
        const float d = f16_scale(extreme / (static_cast<float>(edge) + step)), inverse = reciprocal(d);
        float error = 0;
        for (const ScaleFit& fit : scaled_) {
          const float off = d * static_cast<float>(nearest_integer(fit.scale, inverse)) - fit.scale;
          error += fit.curvature * off * off;
        }
        if (!(error < least)) continue;
        least = error;
        state_.d = d;
      }
    }
  }

  // As start_scaled, for d and dmin.
  void start_with_min() {
    float scale = 0, min = 0, least = std::numeric_limits<float>::infinity();
    for (const AffineFit& fit : affine_) {
      scale = std::max(scale, fit.scale);
      min = std::max(min, -fit.min);
    }
    for (float step = kFirstUnit; step <= kLastUnit; step += kUnitStep) {
      for (float min_step = kFirstUnit; min_step <= kLastUnit; min_step += kUnitStep) {
        const float d = f16_scale(scale / (T::highest_scale + step)),
                    dmin = f16_scale(min / (T::highest_scale + min_step));
        const float inverse = reciprocal(d), min_inverse = reciprocal(dmin);
        float error = 0;
        for (const AffineFit& fit : affine_)
          error += fit.error_at(d * static_cast<float>(nearest_integer(fit.scale, inverse)),
                                -dmin * static_cast<float>(nearest_integer(-fit.min, min_inverse)));
        if (!(error < least)) continue;
        least = error;
        state_.d = d;
        state_.dmin = dmin;
      }
    }
  }

  // For each group, tries the integers next to the group's fit and keeps the best integers and their codes.
  void choose_integers() {
    const float inverse = reciprocal(state_.d), min_inverse = reciprocal(state_.dmin);
    state_.error = 0;
    for (int g = 0; g < kGroups; ++g) {
      int s0, m0 = 0, reach = 0;
      if constexpr (T::has_min) {
        s0 = nearest_integer(affine_[g].scale, inverse);
        m0 = nearest_integer(-affine_[g].min, min_inverse);
        reach = 1;
      } else {
        s0 = nearest_integer(scaled_[g].scale, inverse);
      }
      float least = std::numeric_limits<float>::infinity();
      for (int s = std::max(s0 - 1, T::lowest_scale); s <= std::min(s0 + 1, T::highest_scale); ++s)
        for (int m = std::max(m0 - reach, 0); m <= std::min(m0 + reach, T::highest_scale); ++m)
          try_integers(g, s, m, least);
      state_.error += least;
    }
  }

  void try_integers(int g, int s, int m, float& least) {
    float levels[T::group];
    const int first = g * T::group;
    const float error = choose_levels<L, T::group>(x_ + first, w_ + first, state_.d * static_cast<float>(s),
                                                   -(state_.dmin * static_cast<float>(m)), levels);
    if (!(error < least)) return;
    least = error;
    state_.s[g] = s;
    state_.m[g] = m;
    std::copy(levels, levels + T::group, state_.levels + first);
  }

  // Least squares of x ~ d * (s * level) - dmin * m, given the integers and codes.
  void choose_units() {
    F4 aa{}, ab{}, bb{}, xa{}, xb{};
    for (int i = 0; i < T::block_size; i += 4) {
      const F4 x = load4(x_ + i), w = load4(w_ + i);
      const F4 a = load4(state_.levels + i) * static_cast<float>(state_.s[i / T::group]);
      const float b = static_cast<float>(state_.m[i / T::group]);
      aa += w * a * a;
      ab += w * a * b;
      bb += w * b * b;
      xa += w * x * a;
      xb += w * x * b;
    }
    const float det = sum(aa) * sum(bb) - sum(ab) * sum(ab);
    float d = sum(aa) > 0 ? sum(xa) / sum(aa) : 0, dmin = 0;
    if (T::has_min && det > 0) {
      d = (sum(xa) * sum(bb) - sum(ab) * sum(xb)) / det;
      dmin = (sum(ab) * sum(xa) - sum(aa) * sum(xb)) / det;
    }
    if (!std::isfinite(d) || !std::isfinite(dmin) || dmin < 0) return;
    state_.d = f16_scale(d);
    state_.dmin = f16_scale(dmin);
  }

  const float* x_;
  const float* w_;
  ScaleFit scaled_[kGroups];
  AffineFit affine_[kGroups];
  State state_;
};

}  // namespace ingot::quant
