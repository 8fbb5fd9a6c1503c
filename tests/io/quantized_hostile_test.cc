// Damaged quantized checkpoints: small ones of each layout, every truncation and every byte changed, of the weights and of
// config.json. Each is refused by Error, or gathered into blocks that decode; run it under a sanitizer.
#include <gtest/gtest.h>

#include <cstring>

#include "io/quantized_fixtures.h"
#include "io/refused.h"

namespace ingot {

void PrintTo(const QuantizedFixture& fixture, std::ostream* out) { *out << fixture.name; }

namespace {

class QuantizedHostile : public testing::TestWithParam<QuantizedFixture> {};

TEST_P(QuantizedHostile, EveryTruncation) {
  const std::string config = GetParam().config, whole = GetParam().file.bytes();
  EXPECT_GE(use_quantized(whole, config), 1u);
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_NE(refusal([&] { use_quantized(whole.substr(0, n), config); }), "") << n;
  for (size_t n = 0; n < config.size(); ++n) EXPECT_NE(refusal([&] { use_quantized(whole, config.substr(0, n)); }), "") << n;
}

TEST_P(QuantizedHostile, EveryByteChanged) {
  const std::string config = GetParam().config, whole = GetParam().file.bytes();
  size_t n_used = 0, n_refused = 0;
  auto attempt = [&](const std::string& bytes, const std::string& json) {
    try {
      use_quantized(bytes, json);
      ++n_used;
    } catch (const Error&) {
      ++n_refused;
    }
  };
  uint64_t header = 0;
  std::memcpy(&header, whole.data(), 8);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    for (int value = 0; value < 256; value += i < 8 + header ? 1 : 15) {  // 0, 15, ... 255: of the data
      bytes[i] = static_cast<char>(value);
      attempt(bytes, config);
    }
  }
  constexpr char kValues[] = "\0\x1b\"0123456789-+.eE[]{},:nt \\\x7f\xc3\xff(*";  // and the zero at its end
  for (size_t i = 0; i < config.size(); ++i) {
    std::string json = config;
    for (const char value : kValues) {
      json[i] = value;
      attempt(whole, json);
    }
  }
  EXPECT_GT(n_refused, 10'000u);
  EXPECT_GT(n_used, 1'500u);  // codes, scales, names
}

INSTANTIATE_TEST_SUITE_P(, QuantizedHostile, testing::ValuesIn(quantized_fixtures()), [](const auto& i) { return std::string(i.param.name); });

}  // namespace
}  // namespace ingot
