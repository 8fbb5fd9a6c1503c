// unpack(): codes, scales and minima agree with decode() for random blocks of every format.
#include <algorithm>

#include "quant/format.h"
#include "quant/format_checks.h"

namespace ingot {
namespace {

template <class F>
void for_each_block_format(F&& f) {
  for (int i = 0; i < kFormatCount; ++i) {
    visit(static_cast<Format>(i), [&](auto type) {
      using T = decltype(type);
      if constexpr (quant::IsGrouped<T>) f(static_cast<Format>(i), type);
    });
  }
}

TEST(Unpack, AgreesWithDecode) {
  for_each_block_format([](Format, auto type) { quant::check_unpack<decltype(type)>(test_seed()); });
}

TEST(Unpack, ScaleFieldsAreWhereTheFormatsSay) {
  for_each_block_format([](Format, auto type) { quant::check_scale_fields<decltype(type)>(test_seed()); });
}

TEST(Unpack, ScalesAreStepsOfTheBlocks) {
  int n_formats = 0;
  for_each_block_format([&](Format, auto type) {
    using T = decltype(type);
    if constexpr (T::block_size == 256) {
      quant::check_scale_steps<T>(test_seed());
      ++n_formats;
    } else {
      EXPECT_EQ(T::scale_unit, 1) << T::name;
    }
  });
  EXPECT_EQ(n_formats, 15);
}

TEST(Unpack, RunTimeFaceEqualsTheType) {
  for_each_block_format([](Format format, auto type) {
    using T = decltype(type);
    constexpr size_t kBlocks = 5, kGroups = T::block_size / T::group;
    const uint64_t seed = test_seed();
    SCOPED_TRACE(testing::Message() << T::name << ", seed " << seed);
    const auto blocks = quant::random_blocks<T>(seed, kBlocks);
    const FormatInfo& f = info(format);
    std::vector<uint8_t> codes(kBlocks * T::block_size), expected_codes(codes.size());
    std::vector<float> scales(kBlocks * kGroups), mins(scales), expected_scales(scales), expected_mins(scales);
    f.unpack(blocks.data(), codes.data(), scales.data(), mins.data(), kBlocks);
    for (size_t b = 0; b < kBlocks; ++b) {
      T::unpack(&blocks[b * T::block_bytes], &expected_codes[b * T::block_size], &expected_scales[b * kGroups],
                &expected_mins[b * kGroups]);
    }
    EXPECT_EQ(codes, expected_codes);
    EXPECT_EQ(scales, expected_scales);
    EXPECT_EQ(mins, expected_mins);
    EXPECT_EQ(f.group, T::group);
    EXPECT_EQ(f.run, T::run);
    EXPECT_EQ(f.code_bits, T::code_bits);
    EXPECT_EQ(f.zero, T::zero);
    EXPECT_EQ(f.scale_unit, T::scale_unit);
    EXPECT_EQ(f.has_min, T::has_min);
    EXPECT_EQ(f.codebook != nullptr, quant::HasCodebook<T>);
  });
}

// Device code reads these words instead of the array.
TEST(Unpack, CodebookWordsHoldTheCodebook) {
  for_each_block_format([](Format, auto type) {
    using T = decltype(type);
    if constexpr (quant::HasCodebook<T>) {
      for (int code = 0; code < 16; ++code) {
        EXPECT_EQ(quant::codebook_entry(quant::kCodebookLow<T>, quant::kCodebookHigh<T>, code), T::codebook[code])
            << T::name;
      }
    }
  });
}

// The groups of a run (T::run) have the same scale and minimum.
TEST(Unpack, GroupsOfARunShareTheirScale) {
  int n_formats = 0;
  for_each_block_format([&](Format, auto type) {
    using T = decltype(type);
    if constexpr (T::run > 1) {
      ++n_formats;
      const auto block = quant::random_blocks<T>(test_seed(), 1);
      constexpr int kGroups = T::block_size / T::group;
      uint8_t codes[T::block_size];
      float scales[kGroups], mins[kGroups];
      T::unpack(block.data(), codes, scales, mins);
      for (int g = 0; g < kGroups; ++g) {
        EXPECT_EQ(scales[g], scales[g / T::run * T::run]) << T::name;
        EXPECT_EQ(mins[g], mins[g / T::run * T::run]) << T::name;
      }
    }
  });
  EXPECT_EQ(n_formats, 6);
}

TEST(Unpack, PutIsTheInverse) {
  int n_formats = 0;
  for_each_block_format([&](Format, auto type) {
    using T = decltype(type);
    if constexpr (requires { &T::put; }) {
      ++n_formats;
      const uint64_t seed = test_seed();
      SCOPED_TRACE(testing::Message() << T::name << ", seed " << seed);
      const auto block = quant::random_blocks<T>(seed, 1);
      std::vector<uint8_t> codes(T::block_size), made(T::block_bytes);
      float scales[T::block_size / T::group], mins[T::block_size / T::group];
      T::unpack(block.data(), codes.data(), scales, mins);
      T::put(codes.data(), scales[0], mins[0], made.data());
      EXPECT_EQ(made, block);
    }
  });
  EXPECT_EQ(n_formats, 4);
}

// In blocks of 256, the test sets d and dmin to 1, so that unpack() returns the integers of the groups.
template <class T>
void check_pack(std::vector<uint8_t> block) {
  constexpr int kGroups = T::block_size / T::group;
  std::vector<uint8_t> codes(T::block_size), packed(T::block_bytes);
  float scales[kGroups], mins[kGroups];
  if constexpr (requires { T::lowest_scale; }) {
    int s[kGroups], m[kGroups];
    for (const quant::ScaleField& field : T::scale_fields) store_scale_bits(field, block.data(), 0x3C00);
    T::unpack(block.data(), codes.data(), scales, mins);
    for (int g = 0; g < kGroups; ++g) {
      s[g] = static_cast<int>(scales[g]);
      m[g] = static_cast<int>(-mins[g]);
    }
    EXPECT_GE(*std::min_element(s, s + kGroups), T::lowest_scale);
    EXPECT_LE(*std::max_element(s, s + kGroups), T::highest_scale);
    T::pack(codes.data(), s, m, 1, 1, packed.data());
  } else {
    if (T::scale_fields[0].kind == quant::ScaleKind::kE8M0) block[0] = std::max<uint8_t>(block[0], 2);  // pack's range
    T::unpack(block.data(), codes.data(), scales, mins);
    T::pack(codes.data(), scales[0], mins[0], packed.data());
  }
  EXPECT_EQ(packed, block);
}

TEST(Unpack, PackIsTheInverse) {
  int n_formats = 0;
  for_each_block_format([&](Format, auto type) {
    using T = decltype(type);
    if constexpr (requires { &T::pack; }) {
      ++n_formats;
      const uint64_t seed = test_seed();
      SCOPED_TRACE(testing::Message() << T::name << ", seed " << seed);
      for (uint64_t i = 0; i < 16; ++i) check_pack<T>(quant::random_blocks<T>(seed + i, 1));
    }
  });
  EXPECT_EQ(n_formats, 13);
}

}  // namespace
}  // namespace ingot
