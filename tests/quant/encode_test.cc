// encode_row against the gguf package's quantizers, to the bit, and against its own error bound on fresh numbers.
#include "quant/encode.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "quant/format_checks.h"

namespace ingot {
namespace {

TEST(Encode, EqualsTheGgufPackage) {
  for (const char* name : {"F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"}) {
    SCOPED_TRACE(name);
    const Format format = *format_from_name(name);
    const FormatInfo& f = info(format);
    EXPECT_TRUE(f.can_encode);
    const auto golden = quant::read_golden(std::string(name) + ".encode.bin", f.block_size, f.block_bytes, true);
    std::vector<uint8_t> blocks(golden.blocks.size());
    encode_row(format, golden.weights.data(), blocks.data(), static_cast<int64_t>(golden.weights.size()));
    for (size_t i = 0; i < blocks.size(); ++i) {
      ASSERT_EQ(blocks[i], golden.blocks[i])
          << "block " << i / static_cast<size_t>(f.block_bytes) << ", byte " << i % static_cast<size_t>(f.block_bytes);
    }
  }
}

// The step of a block is its range over the levels; a code is off by half a step, or one where the last level is cut
// off (Q4_0, Q5_0), and the f16 scale adds 2^-11 of the largest.
TEST(Encode, IsWithinOneStep) {
  const uint64_t seed = quant::fresh_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(32 * 64), y(x.size());
  for (float& value : x) value = normal(random);
  for (auto [format, step] : {std::pair{Format::Q8_0, 0.5 / 127},
                              {Format::Q4_0, 1.0 / 8},
                              {Format::Q5_0, 1.0 / 16},
                              {Format::Q4_1, 1.0 / 15},
                              {Format::Q5_1, 1.0 / 31}}) {
    std::vector<uint8_t> row(row_bytes(format, static_cast<int64_t>(x.size())));
    encode_row(format, x.data(), row.data(), static_cast<int64_t>(x.size()));
    decode_row(format, row.data(), y.data(), static_cast<int64_t>(x.size()));
    for (size_t b = 0; b < x.size(); b += 32) {
      double largest = 0;
      for (size_t i = b; i < b + 32; ++i) largest = std::max(largest, std::fabs(static_cast<double>(x[i])));
      for (size_t i = b; i < b + 32; ++i) {
        ASSERT_NEAR(y[i], x[i], largest * (step + 0x1p-9)) << info(format).name << ", element " << i;
      }
    }
  }
}

TEST(Encode, DenseFormatsKeepWhatTheyCanHold) {
  const float x[] = {1.5f, -0.25f, 0.0f, 96.0f};
  for (Format format : {Format::F32, Format::F16, Format::BF16}) {
    uint8_t row[16];
    std::vector<float> y(4);
    encode_row(format, x, row, 4);
    decode_row(format, row, y.data(), 4);
    EXPECT_THAT(y, testing::ElementsAreArray(x)) << info(format).name;
  }
}

TEST(Encode, RefusesWhatNeedsASearch) {
  const std::vector<float> x(256);
  std::vector<uint8_t> row(1024);
  EXPECT_FALSE(info(Format::Q4_K).can_encode);
  try {
    encode_row(Format::Q4_K, x.data(), row.data(), 256);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("Q4_K"));
  }
}

}  // namespace
}  // namespace ingot
