// half.h for every 16-bit pattern, and rounding of random floats, compared with the definition of the formats and with
// the compiler's own _Float16.
#include "base/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "test_seed.h"

namespace ingot {
namespace {

// The value of a finite half by definition: sign, 5 bits of exponent (bias 15), 10 bits of fraction.
double f16_value(uint32_t half) {
  const uint32_t exponent = (half >> 10) & 31, fraction = half & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

// The nearest finite half, the even one in a tie. From 65520 (half a step past the largest half), the result is
// infinity.
uint16_t nearest_f16(float value) {
  static const std::vector<double> magnitudes = [] {
    std::vector<double> all;
    for (uint32_t half = 0; half < 0x7C00; ++half) all.push_back(f16_value(half));
    return all;
  }();
  const uint32_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude >= 65520) return static_cast<uint16_t>(sign | 0x7C00);
  const auto above = std::lower_bound(magnitudes.begin(), magnitudes.end(), magnitude);
  uint32_t half = static_cast<uint32_t>(above - magnitudes.begin());
  if (half == magnitudes.size()) return static_cast<uint16_t>(sign | 0x7BFF);
  if (half > 0) {
    const double to_above = *above - magnitude, to_below = magnitude - above[-1];
    if (to_below < to_above || (to_below == to_above && half % 2 == 1)) --half;
  }
  return static_cast<uint16_t>(sign | half);
}

TEST(F16, EveryPatternHasItsValueAndComesBack) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float value = float_from_f16(static_cast<uint16_t>(half));
    if ((half & 0x7C00) == 0x7C00) {
      if (half & 0x3FF) {
        ASSERT_TRUE(std::isnan(value)) << half;
        ASSERT_GT(f16_from_float(value) & 0x7FFF, 0x7C00) << half;
        ASSERT_EQ(f16_from_float(value) & 0x8000, static_cast<int>(half & 0x8000)) << half;
      } else {
        ASSERT_EQ(value, half & 0x8000 ? -INFINITY : INFINITY);
        ASSERT_EQ(f16_from_float(value), half);
      }
      continue;
    }
    ASSERT_EQ(bits_from_float(value), bits_from_float(static_cast<float>(f16_value(half)))) << half;
    ASSERT_EQ(f16_from_float(value), half);
  }
}

// Floats equal to and next to each half and each midpoint between two halves, where rounding is decided.
TEST(F16, RoundsToNearestEvenAtEveryBoundary) {
  for (uint32_t half = 0; half < 0x7C00; ++half) {
    const double next = half == 0x7BFF ? 65536 : f16_value(half + 1);
    for (double point : {f16_value(half), (f16_value(half) + next) / 2}) {
      const float exact = static_cast<float>(point);
      for (float value : {exact, std::nextafter(exact, 1e9f), std::nextafter(exact, -1e9f)}) {
        ASSERT_EQ(f16_from_float(value), nearest_f16(value)) << value;
        ASSERT_EQ(f16_from_float(-value), nearest_f16(-value)) << -value;
      }
    }
  }
}

TEST(F16, RoundsRandomFloats) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 300'000; ++i) {
    uint32_t bits = static_cast<uint32_t>(random());
    if (i % 2 == 0) bits = (bits & 0x807FFFFF) | ((100 + bits % 45) << 23);  // exponents that matter to f16
    const float value = float_from_bits(bits);
    if (std::isnan(value)) continue;
    ASSERT_EQ(f16_from_float(value), nearest_f16(value)) << value;
  }
}

#ifdef __FLT16_MANT_DIG__
#if defined(__aarch64__)
using NativeHalf = __fp16;  // GCC 12 has _Float16 in C++ on x86 only
#else
using NativeHalf = _Float16;
#endif

TEST(F16, AgreesWithTheCompiler) {
  std::mt19937 random(test_seed());
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const uint16_t pattern = static_cast<uint16_t>(half);
    NativeHalf native;
    memcpy(&native, &pattern, 2);
    const float value = static_cast<float>(native);
    if (std::isnan(value)) continue;
    ASSERT_EQ(bits_from_float(float_from_f16(pattern)), bits_from_float(value)) << half;
    const float other = float_from_bits(static_cast<uint32_t>(random()));
    if (std::isnan(other)) continue;
    const NativeHalf rounded = static_cast<NativeHalf>(other);
    uint16_t rounded_bits;
    memcpy(&rounded_bits, &rounded, 2);
    ASSERT_EQ(f16_from_float(other), rounded_bits) << other;
  }
}
#endif

TEST(Bf16, EveryPatternHasItsValueAndComesBack) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float value = float_from_bf16(static_cast<uint16_t>(half));
    ASSERT_EQ(bits_from_float(value), half << 16);
    if (std::isnan(value)) {
      ASSERT_GT(bf16_from_float(value) & 0x7FFF, 0x7F80) << half;
    } else {
      ASSERT_EQ(bf16_from_float(value), half);
    }
  }
}

// A bfloat16 is the upper half of a float. Rounding gives the nearer of the two neighbours, and the even one in a tie.
TEST(Bf16, RoundsToNearestEven) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 300'000; ++i) {
    uint32_t bits = static_cast<uint32_t>(random());
    if (i % 3 == 0) bits = (bits & 0xFFFF0000) | 0x8000;  // ties
    if (i % 3 == 1) bits = (bits & 0xFFFF0000) | (0x7FFF + 2 * (bits & 1));
    const float value = float_from_bits(bits);
    if (!std::isfinite(value)) continue;
    const uint32_t below = bits >> 16, above = below + 1;  // by magnitude
    const double low = std::fabs(static_cast<double>(float_from_bits(below << 16)));
    const double high =
        (above & 0x7FFF) == 0x7F80 ? 0x1p128 : std::fabs(static_cast<double>(float_from_bits(above << 16)));
    const double magnitude = std::fabs(static_cast<double>(value));
    uint32_t expected = magnitude - low < high - magnitude ? below : above;
    if (magnitude - low == high - magnitude) expected = below % 2 == 0 ? below : above;
    ASSERT_EQ(bf16_from_float(value), expected) << value;
  }
}

}  // namespace
}  // namespace ingot
