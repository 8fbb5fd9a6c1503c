// What every block format must satisfy, as templates over its type: for the formats of formats.def (unpack_test.cc) and
// for the one that docs/add-a-format.md adds (add_a_format_test.cc).
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <vector>

#include "quant/grouped.h"

namespace ingot::quant {

inline uint64_t fresh_seed() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

// Random bytes with finite scale fields of any size and sign.
template <class T>
std::vector<uint8_t> random_blocks(uint64_t seed, int n_blocks) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> blocks(static_cast<size_t>(n_blocks) * T::block_bytes);
  for (uint8_t& byte : blocks) byte = static_cast<uint8_t>(random());
  for (int b = 0; b < n_blocks; ++b) {
    for (const ScaleField& field : T::scale_fields) {
      uint8_t* high_byte = &blocks[static_cast<size_t>(b) * T::block_bytes + static_cast<size_t>(field.offset) + 1];
      if (field.kind == ScaleKind::kF16 && (*high_byte & 0x7C) == 0x7C) *high_byte ^= 0x40;
    }
  }
  return blocks;
}

// value() of grouped.h, from the constants alone.
template <class T>
double code_value(int code) {
  if constexpr (HasCodebook<T>) {
    return T::codebook[code];
  } else {
    return code;
  }
}

// Each weight is scale * value + min, rounded to float once: doubles hold that sum exactly (f16 scales, codes under
// nine bits).
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

// The fields that scale_fields names are all that sets the size of the weights: zero there is zero everywhere.
template <class T>
void check_scale_fields(uint64_t seed) {
  SCOPED_TRACE(testing::Message() << T::name << ", seed " << seed);
  std::vector<uint8_t> block = random_blocks<T>(seed, 1);
  float largest = 0;
  for (const ScaleField& field : T::scale_fields) {
    std::memset(&block[static_cast<size_t>(field.offset)], 0, field.kind == ScaleKind::kF16 ? 2 : 1);
    if (field.kind == ScaleKind::kE8M0) largest = 12 * 0x1p-128f;
  }
  float y[T::block_size];
  T::decode(block.data(), y);
  for (float w : y) ASSERT_LE(std::abs(w), largest);
}

// u32 n_blocks, then two arrays: what tools/quant_goldens/make.py writes.
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

// Equal to the bit, but for which NaN it is.
inline void expect_same_floats(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (expected[i] != expected[i] && actual[i] != actual[i]) continue;
    ASSERT_EQ(bits_from_float(actual[i]), bits_from_float(expected[i]))
        << "element " << i << ": " << actual[i] << ", expected " << expected[i];
  }
}

}  // namespace ingot::quant
