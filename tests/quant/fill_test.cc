// Random weights: the promised mean and deviation, the same bytes for the same seed, and nothing written past the end.
#include "quant/fill.h"

#include <cmath>

#include "quant/format_checks.h"

namespace ingot {
namespace {

class Fill : public testing::TestWithParam<Format> {};

// Measured over several seeds, because one seed chooses from a small random table, whose mean and deviation vary.
TEST_P(Fill, HasMeanZeroAndTheDeviationAsked) {
  const FormatInfo& f = info(GetParam());
  const uint64_t seed = test_seed();
  for (float sigma : {0.02f, 1.0f}) {
    SCOPED_TRACE(testing::Message() << f.name << ", seed " << seed << ", sigma " << sigma);
    constexpr int64_t kSeeds = 16, n = 1 << 16;
    std::vector<uint8_t> blocks(row_bytes(GetParam(), n));
    std::vector<float> w(static_cast<size_t>(n));
    double sum = 0, squares = 0;
    for (uint64_t k = 0; k < kSeeds; ++k) {
      fill_random(GetParam(), seed + k, blocks.data(), n / f.block_size, sigma);
      decode_row(GetParam(), blocks.data(), w.data(), n);
      for (float value : w) {
        ASSERT_TRUE(std::isfinite(value));
        sum += value;
        squares += static_cast<double>(value) * value;
      }
    }
    EXPECT_NEAR(sum / (kSeeds * n), 0, 0.05 * sigma);
    EXPECT_NEAR(std::sqrt(squares / (kSeeds * n)), sigma, 0.1 * sigma);
  }
}

TEST_P(Fill, IsTheSameForTheSameSeedAndStaysInBounds) {
  const FormatInfo& f = info(GetParam());
  const uint64_t seed = test_seed();
  SCOPED_TRACE(testing::Message() << f.name << ", seed " << seed);
  constexpr int64_t kBlocks = 67;
  const size_t n_bytes = static_cast<size_t>(kBlocks * f.block_bytes);
  std::vector<uint8_t> a(n_bytes + 64, 0xA5), b(a), c(a);
  fill_random(GetParam(), seed, a.data(), kBlocks, 0.02f);
  fill_random(GetParam(), seed, b.data(), kBlocks, 0.02f);
  fill_random(GetParam(), seed + 1, c.data(), kBlocks, 0.02f);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  for (size_t i = n_bytes; i < a.size(); ++i) ASSERT_EQ(a[i], 0xA5) << i - n_bytes;
}

std::vector<Format> all_formats() {
  std::vector<Format> formats;
  for (int i = 0; i < kFormatCount; ++i) formats.push_back(static_cast<Format>(i));
  return formats;
}

INSTANTIATE_TEST_SUITE_P(Formats, Fill, testing::ValuesIn(all_formats()),
                         [](const auto& test) { return std::string(ingot::info(test.param).name); });

}  // namespace
}  // namespace ingot
