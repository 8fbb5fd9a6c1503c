// One encoder for each kind of format; the format's constants select the encoder. The format's `pack` writes the block.
#include "quant/encode.h"

#include <limits>
#include <span>

#include "base/error.h"
#include "quant/encode_super.h"

namespace ingot {
namespace quant {
namespace {

constexpr int kMaxBlock = 256;

template <class T>
void pack_levels(const float* levels, float scale, float min, uint8_t* block) {
  uint8_t codes[T::block_size];
  for (int i = 0; i < T::block_size; ++i) codes[i] = Levels<T>::code(levels[i]);
  T::pack(codes, scale, min, block);
}

// For 8 bits, no search is needed: the largest magnitude becomes 127 or -127.
template <class T>
void encode_absmax(const float* x, uint8_t* block) {
  float max = 0;
  for (int i = 0; i < T::block_size; ++i) max = std::max(max, std::fabs(x[i]));
  const float d = max / 127, inverse = reciprocal(d);
  uint8_t codes[T::block_size];
  for (int i = 0; i < T::block_size; ++i) codes[i] = static_cast<uint8_t>(std::round(x[i] * inverse) + T::zero);
  T::pack(codes, d, 0, block);
}

// Uses the scale with the least error.
template <class T>
void encode_best(const float* x, const float* w, std::span<const float> scales, uint8_t* block) {
  float levels[T::block_size], best[T::block_size], best_scale = 0, least = std::numeric_limits<float>::infinity();
  for (const float scale : scales) {
    const float error = choose_levels<Levels<T>, T::block_size>(x, w, scale, 0, levels);
    if (!(error < least)) continue;
    std::copy(levels, levels + T::block_size, best);
    best_scale = scale;
    least = error;
  }
  pack_levels<T>(best, best_scale, 0, block);
}

// Tries the best fit and the scale that maps the extreme to the outermost level. After rounding to f16, the second may
// be better.
template <class T>
void encode_scaled(const float* x, const float* w, uint8_t* block) {
  const float fit = fit_scale<Levels<T>, T::block_size>(x, w).scale,
              plain = extreme_of<T::block_size>(x) / Levels<T>::lowest;
  const float scales[] = {f16_scale(fit), f16_scale(plain)};
  encode_best<T>(x, w, scales, block);
}

template <class T>
void encode_with_min(const float* x, const float* w, uint8_t* block) {
  float levels[T::block_size];
  const AffineFit fit = fit_affine<Levels<T>, T::block_size>(x, w, false);
  const float d = f16_scale(fit.scale), min = rounded_f16(fit.min);
  choose_levels<Levels<T>, T::block_size>(x, w, d, min, levels);
  pack_levels<T>(levels, d, min, block);
}

// Tries the two powers of two next to the best scale, and one more on each side.
template <class T>
void encode_power_of_two(const float* x, const float* w, uint8_t* block) {
  constexpr int kLow = -126, kHigh = 127;
  const float ideal = std::fabs(fit_scale<Levels<T>, T::block_size>(x, w).scale);
  const int octave = ideal > 0 ? std::clamp(std::ilogb(ideal), kLow + 1, kHigh - 2) : kLow + 1;
  const float scales[] = {std::ldexp(1.0f, octave - 1), std::ldexp(1.0f, octave), std::ldexp(1.0f, octave + 1),
                          std::ldexp(1.0f, octave + 2)};
  encode_best<T>(x, w, scales, block);
}

template <class T>
void encode_block(const float* x, const float* w, uint8_t* block) {
  if constexpr (requires { &T::encode; }) {
    T::encode(x, block);
  } else if constexpr (requires { T::lowest_scale; }) {
    SuperBlock<T>(x, w).encode(block);
  } else if constexpr (T::has_min) {
    encode_with_min<T>(x, w, block);
  } else if constexpr (T::zero == 128) {
    encode_absmax<T>(x, block);
  } else if constexpr (T::scale_fields[0].kind == ScaleKind::kE8M0) {
    encode_power_of_two<T>(x, w, block);
  } else {
    encode_scaled<T>(x, w, block);
  }
}

constexpr std::array<float, kMaxBlock> kAllAlike = [] {
  std::array<float, kMaxBlock> ones{};
  for (float& w : ones) w = 1;
  return ones;
}();

}  // namespace
}  // namespace quant

void encode_row(Format format, const float* x, void* row, int64_t n_elements, const float* importance) {
  const FormatInfo& f = info(format);
  CHECK_EQ(n_elements % f.block_size, 0);
  if (!f.can_encode) throw Error("ingot reads {} but cannot write it; choose one of {}", f.name, encodable_formats());
  visit(format, [&](auto type) {
    using T = decltype(type);
    if constexpr (
        requires { &T::encode; } || requires { &T::pack; }) {
      uint8_t* block = static_cast<uint8_t*>(row);
      for (int64_t i = 0; i < n_elements; i += T::block_size, block += T::block_bytes)
        quant::encode_block<T>(x + i, importance ? importance + i : quant::kAllAlike.data(), block);
    }
  });
}

void encode_float8_row(const float* x, void* row, int64_t n_elements) {
  using T = quant::F8_E4M3;
  CHECK_EQ(n_elements % T::block_size, 0);
  float amax = 0;
  for (int64_t i = 0; i < n_elements; ++i) amax = std::max(amax, std::fabs(x[i]));
  const float scale = amax / 448, inverse = quant::reciprocal(scale);
  uint8_t* block = static_cast<uint8_t*>(row);
  for (int64_t first = 0; first < n_elements; first += T::block_size, block += T::block_bytes) {
    uint8_t codes[T::block_size];
    for (int i = 0; i < T::block_size; ++i) codes[i] = quant::e4m3_from_float(x[first + i] * inverse);
    T::put(codes, scale, block);
  }
}

std::string encodable_formats() {
  std::string names;
  for (int i = 0; i < kFormatCount; ++i) {
    const FormatInfo& f = info(static_cast<Format>(i));
    if (f.can_encode) names += (names.empty() ? "" : ", ") + std::string(f.name);
  }
  return names;
}

}  // namespace ingot
