#include "model/config/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "base/json.h"

namespace ingot {
namespace {

// The results of transformers' ROPE_INIT_FUNCTIONS (tools/goldens/make_rope.py).
TEST(Rope, FrequenciesEqualTransformers) {
  const auto cases = nlohmann::json::parse(read_file(INGOT_TEST_DATA "/models/rope.cases"));
  ASSERT_GE(cases.size(), 10u);
  for (const auto& c : cases) {
    const std::string kind = c["rope_type"];
    SCOPED_TRACE(c.dump().substr(0, 200));
    RopeScaling s{.factor = c.value("factor", 1.0f), .original_context = c["original"]};
    std::vector<float> divisors;
    const int n_ctx = c["n_ctx"];
    if (kind == "linear") s.kind = RopeScalingKind::kLinear;
    if (kind == "dynamic") s.kind = RopeScalingKind::kDynamic;
    if (kind == "longrope")
      divisors = c[n_ctx > s.original_context ? "long_factor" : "short_factor"].get<std::vector<float>>();
    if (kind == "longrope") s.kind = RopeScalingKind::kLongRope;
    if (kind == "yarn") {
      s.kind = RopeScalingKind::kYarn;
      s.beta_fast = c.value("beta_fast", s.beta_fast);
      s.beta_slow = c.value("beta_slow", s.beta_slow);
      s.truncate = c.value("truncate", true);
    }
    if (kind == "llama3") {
      s.kind = RopeScalingKind::kLlama3;
      s.low_freq_factor = c["low_freq_factor"];
      s.high_freq_factor = c["high_freq_factor"];
    }
    const std::vector<float> expected = c["inv_freq"];
    const std::vector<float> got =
        rope_frequencies(static_cast<int>(2 * expected.size()), c["rope_theta"], s, divisors, n_ctx);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 3e-6 * expected[i]) << i;
  }
}

TEST(Rope, PlainFrequenciesAreTheFormula) {
  const std::vector<float> f = rope_frequencies(64, 10000, {}, {});
  ASSERT_EQ(f.size(), 32u);
  for (int i = 0; i < 32; ++i) EXPECT_NEAR(f[i], std::pow(10000.0, -2.0 * i / 64), 1e-6 * f[i]) << i;
}

TEST(Rope, LinearScalingAndDivisorsDivide) {
  const std::vector<float> plain = rope_frequencies(8, 100, {}, {});
  const std::vector<float> linear = rope_frequencies(8, 100, {.kind = RopeScalingKind::kLinear, .factor = 4}, {});
  const std::vector<float> divided = rope_frequencies(8, 100, {}, {1, 2, 3, 4});
  for (int i = 0; i < 4; ++i) {
    EXPECT_FLOAT_EQ(linear[i], plain[i] / 4);
    EXPECT_FLOAT_EQ(divided[i], plain[i] / static_cast<float>(i + 1));
  }
}

// YaRN keeps the fast frequencies, divides the slow ones by the factor, and interpolates monotonically in between.
TEST(Rope, YarnInterpolatesSlowFrequenciesOnly) {
  const RopeScaling yarn = {.kind = RopeScalingKind::kYarn, .factor = 8, .original_context = 4096};
  const std::vector<float> plain = rope_frequencies(128, 10000, {}, {}),
                           scaled = rope_frequencies(128, 10000, yarn, {});
  EXPECT_FLOAT_EQ(scaled.front(), plain.front());
  EXPECT_FLOAT_EQ(scaled.back(), plain.back() / 8);
  for (size_t i = 1; i < plain.size(); ++i) {
    EXPECT_LE(scaled[i] / plain[i], scaled[i - 1] / plain[i - 1] + 1e-6f) << i;
    const double turns = 4096 * plain[i] / (2 * M_PI);
    if (turns > 33 || turns < 0.8) {
      EXPECT_FLOAT_EQ(scaled[i], turns > 1 ? plain[i] : plain[i] / 8) << i;
    }
  }
}

TEST(Rope, YarnExtrapolatesAShare) {
  const auto scaled = [](float share) {
    return rope_frequencies(
        128, 10000, {.kind = RopeScalingKind::kYarn, .factor = 8, .original_context = 4096, .extrapolation = share}, {});
  };
  const std::vector<float> plain = rope_frequencies(128, 10000, {}, {}), none = scaled(0), half = scaled(0.5f),
                           all = scaled(1);
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_FLOAT_EQ(none[i], plain[i] / 8) << i;
    EXPECT_FLOAT_EQ(half[i], (none[i] + all[i]) / 2) << i;
  }
}

}  // namespace
}  // namespace ingot
