// The levels that a format's codes stand for. Finds the levels nearest to four numbers at a time, and the code of a
// level. For fit.h and encode.cc.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "quant/grouped.h"

namespace ingot::quant {

using F4 = float __attribute__((vector_size(16)));

inline F4 load4(const float* p) {
  F4 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store4(float* p, F4 v) { std::memcpy(p, &v, sizeof v); }
inline float sum(F4 v) { return (v[0] + v[1]) + (v[2] + v[3]); }

// 1 / d, or 0 if 1 / d is not finite.
inline float reciprocal(float d) {
  const float inverse = 1.0f / d;
  return std::isfinite(inverse) ? inverse : 0.0f;
}

inline float rounded_f16(float value) { return float_from_f16(f16_from_float(value)); }

// A scale rounded to f16. A nonzero scale that would round to 0 becomes the smallest f16; the codes are then smaller.
inline float f16_scale(float value) {
  const float rounded = rounded_f16(value);
  return rounded == 0 && value != 0 ? std::copysign(0x1p-24f, value) : rounded;
}

// The integers from `first` (code 0) to `last`.
template <int first, int last>
struct IntLevels {
  static constexpr float lowest = first, highest = last, unit = 1;  // unit: the typical distance between two levels
  static F4 nearest(F4 v) {
    constexpr float kRound = 0x1.8p23f;  // adding kRound rounds v to an integer
    v = (v + kRound) - kRound;
    v = v < lowest ? lowest + F4{} : v;
    return v > highest ? highest + F4{} : v;
  }
  static uint8_t code(float level) { return static_cast<uint8_t>(static_cast<int>(level) - first); }
};

// The codebook in ascending order, each level once.
template <class T>
constexpr auto sorted_codebook() {
  struct Entry {
    int level = 0, code = 0;
  };
  struct Sorted {
    std::array<Entry, 16> entries{};
    int n = 0;
  } sorted;
  for (int level = -128; level < 128; ++level) {
    for (int code = 0; code < 16; ++code) {
      if (T::codebook[code] != level) continue;
      sorted.entries[sorted.n++] = {level, code};
      break;
    }
  }
  return sorted;
}

template <class T>
struct BookLevels {
  static constexpr auto book = sorted_codebook<T>();
  static constexpr float lowest = book.entries[0].level, highest = book.entries[book.n - 1].level;
  static constexpr float unit = (highest - lowest) / 16;
  static F4 nearest(F4 v) {
    F4 level = lowest + F4{};
    for (int k = 1; k < book.n; ++k) {
      const float below = book.entries[k - 1].level, above = book.entries[k].level;
      level += v > (below + above) * 0.5f ? (above - below) + F4{} : F4{};
    }
    return level;
  }
  static uint8_t code(float level) {
    for (const auto& entry : book.entries)
      if (static_cast<float>(entry.level) == level) return static_cast<uint8_t>(entry.code);
    return 0;
  }
};

template <class T, bool = HasCodebook<T>>
struct LevelsOf {
  using type = BookLevels<T>;
};
template <class T>
struct LevelsOf<T, false> {
  using type = IntLevels<-T::zero, T::levels - 1 - T::zero>;
};
template <class T>
using Levels = typename LevelsOf<T>::type;

}  // namespace ingot::quant
