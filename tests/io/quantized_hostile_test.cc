// Damaged quantized checkpoints: a small one of each layout, with every truncation and every byte changed, of the
// weights and of config.json. Each is refused by Error, or gathered into blocks that decode. Run this test under a
// sanitizer.
#include <gtest/gtest.h>

#include "io/quantized_fixtures.h"
#include "io/sweep.h"

namespace ingot {

void PrintTo(const QuantizedFixture& fixture, std::ostream* out) { *out << fixture.name; }

namespace {

class QuantizedHostile : public testing::TestWithParam<QuantizedFixture> {};

TEST_P(QuantizedHostile, EveryTruncation) {
  const std::string config = GetParam().config, whole = GetParam().file.bytes();
  EXPECT_GE(use_quantized(whole, config), 1u);
  expect_cuts_refused(whole, [&](const std::string& bytes) { use_quantized(bytes, config); });
  expect_cuts_refused(config, [&](const std::string& json) { use_quantized(whole, json); });
}

TEST_P(QuantizedHostile, EveryValueOfEveryByte) {
  const std::string config = GetParam().config, whole = GetParam().file.bytes();
  EXPECT_GT(sweep_bytes(whole, [&](const std::string& bytes) { use_quantized(bytes, config); }), 10'000u);
}

TEST_P(QuantizedHostile, EveryValueOfEveryByteOfTheConfig) {
  const std::string config = GetParam().config, whole = GetParam().file.bytes();
  EXPECT_GT(sweep_bytes(config, [&](const std::string& json) { use_quantized(whole, json); }), config.size() * 100);
}

INSTANTIATE_TEST_SUITE_P(, QuantizedHostile, testing::ValuesIn(quantized_fixtures()),
                         [](const auto& i) { return std::string(i.param.name); });

}  // namespace
}  // namespace ingot
