// Checks that every block format must pass, as templates over the format's type. Used for the formats of formats.def
// (unpack_test.cc) and for the format that docs/add-a-format.md adds (add_a_format_test.cc).
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <vector>

#include "quant/grouped.h"
#include "test_seed.h"

namespace ingot::quant {

inline bool has_nonfinite(ScaleKind kind) { return kind == ScaleKind::kF16 || kind == ScaleKind::kF16Nibbles; }

template <class T>
concept IsGrouped = requires {
  T::group;
};

// Random bytes with finite scale fields of any size and sign. The magnitude of an f32 scale is a bf16 below 2, so that
// products stay finite.
template <class T>
std::vector<uint8_t> random_blocks(uint64_t seed, int n_blocks) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> blocks(static_cast<size_t>(n_blocks) * T::block_bytes);
  for (uint8_t& byte : blocks) byte = static_cast<uint8_t>(random());
  for (int b = 0; b < n_blocks; ++b) {
    uint8_t* block = &blocks[static_cast<size_t>(b) * T::block_bytes];
    for (const ScaleField& field : T::scale_fields) {
      const uint16_t bits = load_scale_bits(field, block);
      if (has_nonfinite(field.kind) && (bits & 0x7C00) == 0x7C00) store_scale_bits(field, block, bits ^ 0x4000);
      if (field.kind == ScaleKind::kF32) store_scale_bits(field, block, bits & 0xBFFF);
    }
  }
  return blocks;
}

// Some backends store scales as small integers, and rely on these properties of blocks of 256 elements.
template <class T>
void check_scale_steps(uint64_t seed) {
  SCOPED_TRACE(testing::Message() << T::name << ", seed " << seed);
  constexpr int kGroups = T::block_size / T::group;
  const std::vector<uint8_t> blocks = random_blocks<T>(seed, 64);
  for (int b = 0; b < 64; ++b) {
    const uint8_t* block = &blocks[static_cast<size_t>(b) * T::block_bytes];
    float planes[2][kGroups];
    uint8_t codes[T::block_size];
    T::unpack(block, codes, planes[0], planes[1]);
    for (int plane = 0; plane < (T::has_min ? 2 : 1); ++plane) {
      const double d = float_from_f16(load_scale_bits(T::scale_fields[plane], block)), step = d * T::scale_unit;
      for (float scale : planes[plane]) {
        const double n = step == 0 ? 0 : scale / step;
        ASSERT_EQ(n, std::round(n)) << "block " << b;
        ASSERT_LE(std::abs(n), plane == 0 && n < 0 ? 128 : 127) << "block " << b;
        ASSERT_EQ(n * step, scale) << "block " << b;
      }
    }
  }
}

// Like value() of grouped.h, but computed only from the constants.
template <class T>
double code_value(int code) {
  if constexpr (HasCodebook<T>) {
    return T::codebook[code];
  } else {
    return code;
  }
}

// Each weight is scale * value + min, rounded to float once. A double holds this sum exactly, because scales have 16
// bits and codes fewer than nine. If the exponents are far apart, the double holds all bits that affect the rounding.
template <class T>
void check_unpack(uint64_t seed) {
  SCOPED_TRACE(testing::Message() << T::name << ", seed " << seed);
  constexpr int kBlocks = 256, kGroups = T::block_size / T::group;
  const std::vector<uint8_t> blocks = random_blocks<T>(seed, kBlocks);
  std::set<int> seen;
  for (int b = 0; b < kBlocks; ++b) {
    const uint8_t* block = &blocks[static_cast<size_t>(b) * T::block_bytes];
    float y[T::block_size], scales[kGroups], mins[kGroups];
    uint8_t codes[T::block_size];
    T::decode(block, y);
    T::unpack(block, codes, scales, mins);
    for (int i = 0; i < T::block_size; ++i) {
      const int g = i / T::group;
      const double expected = static_cast<double>(scales[g]) * code_value<T>(codes[i]) + static_cast<double>(mins[g]);
      ASSERT_EQ(y[i], static_cast<float>(expected)) << "block " << b << ", element " << i;
      if (!T::has_min) {
        ASSERT_EQ(mins[g], -T::zero * scales[g]) << "block " << b << ", group " << g;
      }
      seen.insert(codes[i]);
    }
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(T::levels));
  EXPECT_EQ(*seen.rbegin(), T::levels - 1);
  EXPECT_LE(T::levels, 1 << T::code_bits);
}

// Only the fields in scale_fields determine the magnitude of the weights: if all are zero, every weight is zero.
template <class T>
void check_scale_fields(uint64_t seed) {
  SCOPED_TRACE(testing::Message() << T::name << ", seed " << seed);
  std::vector<uint8_t> block = random_blocks<T>(seed, 1);
  float largest = 0;
  for (const ScaleField& field : T::scale_fields) {
    store_scale_bits(field, block.data(), 0);
    if (field.kind == ScaleKind::kE8M0) largest = 12 * 0x1p-128f;
  }
  float y[T::block_size];
  T::decode(block.data(), y);
  for (float w : y) ASSERT_LE(std::abs(w), largest);
}

// u32 n_blocks, then two arrays; written by tools/quant_goldens/make.py.
struct Golden {
  std::vector<uint8_t> blocks;
  std::vector<float> weights;
};

inline Golden read_golden(const std::string& file, int block_size, int block_bytes, bool weights_first) {
  const std::string path = std::string(INGOT_TEST_DATA) + "/quant/" + file;
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << "no " << path << ": make it with tools/quant_goldens/make.py";
  uint32_t n_blocks = 0;
  in.read(reinterpret_cast<char*>(&n_blocks), 4);
  Golden golden{std::vector<uint8_t>(size_t{n_blocks} * static_cast<size_t>(block_bytes)),
                std::vector<float>(size_t{n_blocks} * static_cast<size_t>(block_size))};
  auto read = [&](auto& array) {
    in.read(reinterpret_cast<char*>(array.data()), static_cast<std::streamsize>(array.size() * sizeof(array[0])));
  };
  if (weights_first) read(golden.weights);
  read(golden.blocks);
  if (!weights_first) read(golden.weights);
  EXPECT_TRUE(in && n_blocks > 0) << path << " is cut short";
  EXPECT_EQ(in.peek(), EOF) << path << " is too long";
  return golden;
}

// Requires equal bits; any NaN equals any other NaN.
inline void expect_same_floats(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (expected[i] != expected[i] && actual[i] != actual[i]) continue;
    ASSERT_EQ(bits_from_float(actual[i]), bits_from_float(expected[i]))
        << "element " << i << ": " << actual[i] << ", expected " << expected[i];
  }
}

}  // namespace ingot::quant
