// Blocks are filled with random bytes; then each scale field of the format gets a value from a small table. Dense
// formats get numbers from a table of normal deviates. Both tables are already scaled by sigma, so the loops only copy.
#include "quant/fill.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/splitmix.h"

namespace ingot {
namespace {

// A counter whose bits are mixed.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    return splitmix(state_ += kSplitMixStep);
  }
  float uniform() { return static_cast<float>(next() >> 40) * 0x1p-24f; }  // [0, 1)

 private:
  uint64_t state_;
};

void fill_bytes(Random& random, uint8_t* out, int64_t n_bytes) {
  int64_t i = 0;
  for (; i + 8 <= n_bytes; i += 8) {
    const uint64_t word = random.next();
    std::memcpy(out + i, &word, 8);
  }
  const uint64_t word = random.next();
  std::memcpy(out + i, &word, static_cast<size_t>(n_bytes - i));
}

// Draws the power of two below or above |scale|, as the e of 2^(e-128). The probabilities give the mean square scale^2.
uint8_t e8m0_near(float scale, Random& random) {
  int exponent;
  const float fraction = std::frexp(std::fabs(scale), &exponent) * 2;  // [1, 2), of 2^(exponent - 1)
  const bool up = random.uniform() * 3 < fraction * fraction - 1;
  return static_cast<uint8_t>(std::clamp(127 + exponent + up, 0, 254));
}

// Draws the E4M3 number below or above |scale| in the same way. Steps are even within an octave and below 2^-6.
uint8_t ue4m3_near(float scale, Random& random) {
  int exponent;
  std::frexp(scale, &exponent);
  const int octave = std::max(exponent - 1, -6);
  const float steps = std::ldexp(std::fabs(scale), 3 - octave), below = std::floor(steps);  // 8 to 16; fewer below 2^-6
  const bool up = random.uniform() * (2 * below + 1) < steps * steps - below * below;
  return static_cast<uint8_t>(std::clamp(8 * (octave + 6) + static_cast<int>(below) + up, 0, 0x7E));
}

uint16_t scale_bits(float scale, quant::ScaleKind kind, Random& random) {
  if (kind == quant::ScaleKind::kE8M0) return e8m0_near(scale, random);
  if (kind == quant::ScaleKind::kUE4M3) return ue4m3_near(scale, random);
  if (kind == quant::ScaleKind::kF32) return bf16_from_float(scale);
  return f16_from_float(scale);
}

constexpr int kVariants = 256;  // scales to choose from

// The bits of all scale fields, kVariants times. A field is unit * sigma * factor. The factors have mean square 1 and
// magnitudes of about 0.5 to 1.5. Every second variant negates the factor of the variant before, so the weights have
// mean 0 even if the levels are not symmetric about 0. The fields of a block share a factor, which keeps scale and
// minimum in proportion. A field that multiplies another field has its own factor. A field that whole matrices share
// has no factor.
std::vector<uint16_t> scale_table(const FormatInfo& f, float sigma, Random& random) {
  std::vector<uint16_t> table;  // [kVariants, n_scale_fields]
  constexpr float kRootMeanSquare = 1.0408f;
  float factor = 0;
  for (int v = 0; v < kVariants; ++v) {
    factor = v % 2 == 0 ? (0.5f + random.uniform()) / kRootMeanSquare : -factor;
    for (int i = 0; i < f.n_scale_fields; ++i) {
      const quant::ScaleField& field = f.scale_fields[i];
      const float size = field.multiplies ? (0.5f + random.uniform()) / kRootMeanSquare
                         : field.shared   ? sigma
                                          : sigma * factor;
      table.push_back(scale_bits(field.unit * size, field.kind, random));
    }
  }
  return table;
}

void fill_blocks(const FormatInfo& f, Random& random, uint8_t* blocks, int64_t n_blocks, float sigma) {
  const std::vector<uint16_t> table = scale_table(f, sigma, random);
  fill_bytes(random, blocks, n_blocks * f.block_bytes);
  uint64_t choices = 0;
  for (int64_t b = 0; b < n_blocks; ++b, choices >>= 8) {
    if (b % 8 == 0) choices = random.next();
    const uint16_t* scales = &table[choices % kVariants * static_cast<size_t>(f.n_scale_fields)];
    for (int i = 0; i < f.n_scale_fields; ++i) {
      store_scale_bits(f.scale_fields[i], blocks + b * f.block_bytes, scales[i]);
    }
  }
}

template <class T>
void fill_dense(Random& random, uint8_t* out, int64_t n, float sigma) {
  constexpr uint64_t kDeviates = 4096;
  std::vector<uint8_t> table(kDeviates * T::block_bytes);
  for (uint64_t i = 0; i < kDeviates; ++i) {
    float sum = -6;  // twelve uniforms minus six: nearly normal, deviation 1, same on every machine
    for (int j = 0; j < 12; ++j) sum += random.uniform();
    const float value = sum * sigma;
    T::encode(&value, &table[i * T::block_bytes]);
  }
  uint64_t word = 0;
  for (int64_t i = 0; i < n; ++i, word >>= 12) {
    if (i % 5 == 0) word = random.next();
    std::memcpy(out + i * T::block_bytes, &table[word % kDeviates * T::block_bytes], T::block_bytes);
  }
}

}  // namespace

void fill_random(Format format, uint64_t seed, uint8_t* blocks, int64_t n_blocks, float sigma) {
  Random random(seed);
  visit(format, [&](auto type) {
    using T = decltype(type);
    if constexpr (T::block_size == 1) {
      fill_dense<T>(random, blocks, n_blocks, sigma);
    } else {
      fill_blocks(info(format), random, blocks, n_blocks, sigma);
      if constexpr (requires { &T::drop_nan; }) {
        for (int64_t b = 0; b < n_blocks; ++b) T::drop_nan(blocks + b * T::block_bytes);
      }
    }
  });
}

}  // namespace ingot
