// The host sampler against an oracle in doubles that follows the papers with full sorts, and against hand-computed
// cases.
#include "backend/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "backend/philox.h"
#include "base/error.h"
#include "test_seed.h"

namespace ingot {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SamplingParams untruncated() {
  SamplingParams params;
  params.temperature = 1;
  params.top_k = 0;
  params.top_p = 1;
  params.min_p = 0;
  return params;
}

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

Sampled sample(const std::vector<float>& logits, const SamplingParams& params, int64_t position = 0,
               std::vector<int32_t> history = {}, const uint32_t* mask = nullptr) {
  SamplerScratch scratch(static_cast<int>(logits.size()));
  return sample_row(logits, {&params, position, history, mask}, scratch);
}

// ---- the oracle ----

struct Choice {
  int32_t id;
  double logit;
  double p = 0;
};

struct Oracle {
  std::vector<Choice> kept;  // in order of id, with the probabilities of the draw
  double margin = 1;         // how close a truncation was to another decision
};

void normalise(std::vector<Choice>& choices, double temperature = 1) {
  double top = -kInf, total = 0;
  for (const Choice& c : choices) top = std::max(top, c.logit);
  for (Choice& c : choices) total += c.p = std::exp((c.logit - top) / temperature);
  for (Choice& c : choices) c.p /= total;
}

bool by_logit(const Choice& a, const Choice& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; }

// The shortest prefix with at least `mass`.
void cut_at_mass(std::vector<Choice>& choices, double mass, double& margin) {
  double sum = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    sum += choices[i].p;
    margin = std::min(margin, std::fabs(sum - mass));
    if (sum >= mass) {
      choices.resize(i + 1);
      return;
    }
  }
}

void cut_typical(std::vector<Choice>& choices, double mass, double& margin) {
  normalise(choices);
  double entropy = 0;
  for (const Choice& c : choices) entropy -= c.p > 0 ? c.p * std::log(c.p) : 0;
  const auto surprise = [&](const Choice& c) { return std::fabs(-std::log(c.p) - entropy); };
  std::stable_sort(choices.begin(), choices.end(),
                   [&](const Choice& a, const Choice& b) { return surprise(a) < surprise(b); });
  const std::vector<Choice> all = choices;
  cut_at_mass(choices, mass, margin);
  if (choices.size() < all.size()) {
    margin = std::min(margin, surprise(all[choices.size()]) - surprise(choices.back()));
  }
}

Oracle oracle(const std::vector<float>& logits, const SamplingParams& params) {
  Oracle result;
  std::vector<Choice>& kept = result.kept;
  for (size_t i = 0; i < logits.size(); ++i) kept.push_back({static_cast<int32_t>(i), logits[i]});
  std::sort(kept.begin(), kept.end(), by_logit);
  if (params.top_k > 0 && kept.size() > static_cast<size_t>(params.top_k)) kept.resize(params.top_k);
  if (params.typical_p < 1) cut_typical(kept, params.typical_p, result.margin);
  std::sort(kept.begin(), kept.end(), by_logit);
  normalise(kept);
  if (params.top_p < 1) cut_at_mass(kept, params.top_p, result.margin);
  const double floor = params.min_p * kept[0].p;
  for (const Choice& c : kept) result.margin = std::min(result.margin, std::fabs(c.p - floor) / kept[0].p);
  std::erase_if(kept, [&](const Choice& c) { return c.p < floor; });
  std::sort(kept.begin(), kept.end(), [](const Choice& a, const Choice& b) { return a.id < b.id; });
  normalise(kept, params.temperature);
  return result;
}

// The token at u of the cumulative distribution, or -1 if rounding may decide.
int32_t oracle_draw(const Oracle& expected, double u) {
  if (expected.margin < 1e-5) return -1;
  double sum = 0;
  for (const Choice& c : expected.kept) {
    sum += c.p;
    if (std::fabs(sum - u) < 1e-5) return -1;
    if (sum > u) return c.id;
  }
  return -1;
}

class Random {
 public:
  Random() : seed_(test_seed()), engine_(seed_) {}
  unsigned seed() const { return seed_; }
  double uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(engine_); }
  int integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool chance(double p) { return uniform(0, 1) < p; }
  std::vector<float> logits(int n, double sigma) {
    std::vector<float> values(n);
    std::normal_distribution<float> normal(0, static_cast<float>(sigma));
    for (float& value : values) value = normal(engine_);
    return values;
  }

 private:
  unsigned seed_;
  std::mt19937 engine_;
};

SamplingParams random_params(Random& random, int n_vocab) {
  SamplingParams params = untruncated();
  params.temperature = static_cast<float>(random.uniform(0.3, 2));
  if (random.chance(0.5)) params.top_k = random.integer(1, std::max(1, n_vocab));
  if (random.chance(0.3)) params.typical_p = static_cast<float>(random.uniform(0.05, 0.99));
  if (random.chance(0.5)) params.top_p = static_cast<float>(random.uniform(0.05, 0.999));
  if (random.chance(0.5)) params.min_p = static_cast<float>(random.uniform(0, 0.5));
  params.seed = static_cast<uint64_t>(random.integer(0, 1 << 30)) << 31;
  return params;
}

TEST(Philox, KnownAnswers) {  // kat_vectors of Random123
  const auto words = [](PhiloxBlock b) { return std::vector<uint32_t>(b.word, b.word + 4); };
  EXPECT_THAT(words(philox4x32({{0, 0, 0, 0}}, 0, 0)),
              testing::ElementsAre(0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u));
  EXPECT_THAT(words(philox4x32({{~0u, ~0u, ~0u, ~0u}}, ~0u, ~0u)),
              testing::ElementsAre(0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu));
  EXPECT_THAT(words(philox4x32({{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}}, 0xa4093822u, 0x299f31d0u)),
              testing::ElementsAre(0xd16cfe09u, 0x94fdcceb, 0x5001e420u, 0x24126ea1u));
}

TEST(Philox, SeedPositionAndStreamAllMatter) {
  const double base = uniform_draw(7, 9);
  EXPECT_NE(base, uniform_draw(8, 9));
  EXPECT_NE(base, uniform_draw(7, 10));
  EXPECT_NE(base, uniform_draw(7, 9, 1));
  EXPECT_NE(base, uniform_draw(7 + (uint64_t{1} << 32), 9));
  EXPECT_NE(base, uniform_draw(7, 9 + (uint64_t{1} << 32)));
}

TEST(Argmax, FollowsTheRules) {
  EXPECT_EQ(argmax(std::vector<float>{1, 3, 2}), 1);
  EXPECT_EQ(argmax(std::vector<float>{2, 3, 3, 3}), 1);
  EXPECT_EQ(argmax(std::vector<float>{-0.0f, 0.0f}), 0);
  EXPECT_EQ(argmax(std::vector<float>{kNan, 1, kNan, 2}), 3);
  EXPECT_EQ(argmax(std::vector<float>{kNan, kNan, -kInf}), 2);
  EXPECT_EQ(argmax(std::vector<float>{kNan, kNan}), 0);
  EXPECT_EQ(argmax(std::vector<float>{-kInf, -kInf}), 0);
  EXPECT_EQ(argmax(std::vector<float>{1, kInf, kInf}), 1);
  EXPECT_EQ(argmax(std::vector<float>{-5}), 0);
  EXPECT_THROW(argmax({}), Error);
}

TEST(Argmax, EveryPositionOfALongRow) {
  Random random;
  SCOPED_TRACE(random.seed());
  const int n = 5003;
  std::vector<float> logits = random.logits(n, 1);
  for (int i = 0; i < n; i += random.integer(1, 7)) logits[i] = kNan;
  for (int round = 0; round < 500; ++round) {
    const int first = random.integer(0, n - 1), second = random.integer(0, n - 1);
    const float saved_first = logits[first], saved_second = logits[second];
    logits[first] = logits[second] = 100;
    ASSERT_EQ(argmax(logits), std::min(first, second));
    logits[first] = saved_first;
    logits[second] = saved_second;
  }
}

TEST(Sampler, AgreesWithTheOracle) {
  Random random;
  SCOPED_TRACE(random.seed());
  int compared = 0, undecided = 0;
  for (int round = 0; round < 1500; ++round) {
    const int n = random.chance(0.3) ? random.integer(1, 40) : random.integer(1, 6000);
    const std::vector<float> logits = random.logits(n, random.uniform(0.5, 6));
    const SamplingParams params = random_params(random, random.chance(0.5) ? 100 : n);
    const Oracle expected = oracle(logits, params);
    SamplerScratch scratch(n);
    for (int64_t position = 0; position < 8; ++position) {
      const int32_t want = oracle_draw(expected, uniform_draw(params.seed, static_cast<uint64_t>(position)));
      const int32_t got = sample_row(logits, {&params, position, {}, nullptr}, scratch).token;
      if (want < 0) {
        ++undecided;
        continue;
      }
      ++compared;
      ASSERT_EQ(got, want) << "n " << n << " T " << params.temperature << " k " << params.top_k << " typ "
                           << params.typical_p << " p " << params.top_p << " min " << params.min_p;
    }
  }
  EXPECT_GT(compared, 4 * undecided);
}

// Wilson and Hilferty's normal approximation of chi-square.
double chi_square_z(double chi_square, double freedom) {
  const double v = 2.0 / (9 * freedom);
  return (std::cbrt(chi_square / freedom) - (1 - v)) / std::sqrt(v);
}

TEST(Sampler, DrawsInProportion) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (int round = 0; round < 6; ++round) {
    const int n = 24, n_draws = 30000;
    const std::vector<float> logits = random.logits(n, 1);
    SamplingParams params = untruncated();
    params.temperature = static_cast<float>(random.uniform(0.7, 1.5));
    if (round % 2 == 1) params.top_p = 0.8f;
    params.seed = random.seed() + static_cast<uint64_t>(round);
    const Oracle expected = oracle(logits, params);
    std::map<int32_t, int> counts;
    SamplerScratch scratch(n);
    for (int64_t i = 0; i < n_draws; ++i) ++counts[sample_row(logits, {&params, i, {}, nullptr}, scratch).token];
    double chi_square = 0;
    int drawn = 0;
    for (const Choice& c : expected.kept) {
      const double want = c.p * n_draws, difference = counts[c.id] - want;
      chi_square += difference * difference / want;
      drawn += counts[c.id];
    }
    EXPECT_EQ(drawn, n_draws) << "something outside the kept set was drawn";
    EXPECT_LT(std::fabs(chi_square_z(chi_square, static_cast<double>(expected.kept.size()) - 1)), 6);
  }
}

TEST(Sampler, TheDrawDependsOnSeedAndPositionOnly) {
  Random random;
  const std::vector<float> logits = random.logits(300, 1);
  SamplingParams params = untruncated();
  params.seed = 42;
  const int32_t first = sample(logits, params, 5).token;
  std::vector<int32_t> over_positions, over_seeds;
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(sample(logits, params, 5, {1, 2, 3}).token, first);
    over_positions.push_back(sample(logits, params, i).token);
    SamplingParams other = params;
    other.seed = i;
    over_seeds.push_back(sample(logits, other, 5).token);
  }
  EXPECT_GT(std::set<int32_t>(over_positions.begin(), over_positions.end()).size(), 20u);
  EXPECT_GT(std::set<int32_t>(over_seeds.begin(), over_seeds.end()).size(), 20u);
}

TEST(Sampler, TiesAreKeptInOrderOfId) {
  SamplingParams params = untruncated();
  params.top_k = 3;
  std::set<int32_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(sample({0, 1, 1, 1, 1, 0}, params, i).token);
  EXPECT_THAT(seen, testing::ElementsAre(1, 2, 3));
  params.top_k = 0;
  params.top_p = 0.5f;
  seen.clear();
  for (int i = 0; i < 200; ++i) seen.insert(sample({1, 1, 1, 1}, params, i).token);
  EXPECT_THAT(seen, testing::ElementsAre(0, 1));
}

TEST(Sampler, KeepsAtLeastOne) {
  SamplingParams params = untruncated();
  params.top_p = 1e-6f;
  EXPECT_EQ(sample({0, 2, 1}, params).token, 1);
  params.top_p = 1;
  params.min_p = 1;
  EXPECT_EQ(sample({0, 2, 1}, params).token, 1);
  params.min_p = 0;
  params.typical_p = 1e-6f;
  // p = .09 .67 .24, H = 0.83: the surprises are 2.41 .41 1.41, so token 1 is the most typical (0.42 off).
  EXPECT_EQ(sample({0, 2, 1}, params).token, 1);
}

TEST(Sampler, TypicalMayDropTheLikeliest) {
  // p = 0.4 and twelve times 0.05: H = 2.16; the surprise of the first is 0.92 (1.25 off), of the others 3.00 (0.83
  // off).
  std::vector<float> logits(13, std::log(0.05f));
  logits[0] = std::log(0.4f);
  SamplingParams params = untruncated();
  params.typical_p = 0.5f;
  for (int i = 0; i < 100; ++i) EXPECT_NE(sample(logits, params, i).token, 0);
}

TEST(Sampler, PenaltiesByHand) {
  SamplingParams params = greedy();
  params.repetition_penalty = 2;
  EXPECT_EQ(sample({4, 3, 0}, params, 1, {0}).token, 1);          // 4 / 2 = 2 < 3
  EXPECT_EQ(sample({-1, -1.5f, -9}, params, 1, {0}).token, 1);    // -1 * 2 = -2 < -1.5
  EXPECT_EQ(sample({4, 1.9f, 0}, params, 2, {0, 0}).token, 0);    // once, although seen twice: 2
  params.repetition_penalty = 1;
  params.presence_penalty = 1;
  EXPECT_EQ(sample({4, 2.9f, 0}, params, 3, {0, 0, 0}).token, 0);  // 4 - 1
  EXPECT_EQ(sample({4, 3.1f, 0}, params, 3, {0, 0, 0}).token, 1);
  params.presence_penalty = 0;
  params.frequency_penalty = 0.5f;
  EXPECT_EQ(sample({4, 2.6f, 0}, params, 3, {0, 0, 0}).token, 1);  // 4 - 3 * 0.5 = 2.5
  EXPECT_EQ(sample({4, 2.4f, 0}, params, 3, {0, 0, 0}).token, 0);
  params.penalty_window = 2;
  EXPECT_EQ(sample({4, 3.1f, 0}, params, 3, {0, 0, 1}).token, 0);  // sees 0 and 1 once each: 3.5 and 2.6
  params.penalty_window = 0;
  EXPECT_EQ(sample({4, 3.9f, 0}, params, 3, {0, 0, 0}).token, 0);
  params.penalty_window = -1;
  EXPECT_EQ(sample({4, 3, 0}, params, 99, std::vector<int32_t>(99, 0)).token, 1);
}

TEST(Sampler, PenaltiesOfOneRowDoNotTouchTheNext) {
  SamplingParams params = greedy();
  params.frequency_penalty = 100;
  SamplerScratch scratch(3);
  const std::vector<float> logits{4, 3, 0};
  const std::vector<int32_t> seen{0, 0};
  EXPECT_EQ(sample_row(logits, {&params, 2, seen, nullptr}, scratch).token, 1);
  EXPECT_EQ(sample_row(logits, {&params, 0, {}, nullptr}, scratch).token, 0);
}

TEST(Sampler, BiasAndMask) {
  SamplingParams params = greedy();
  params.logit_bias = {{2, 5.0f}};
  EXPECT_EQ(sample({4, 3, 0}, params).token, 2);
  params.logit_bias = {{0, -kInf}};
  EXPECT_EQ(sample({4, 3, 0}, params).token, 1);
  EXPECT_EQ(sample({kInf, 3, 0}, params).token, 1);
  std::vector<float> logits(70, 0.0f);
  logits[3] = 9;
  const uint32_t mask[3] = {1u << 31, 0, 1u << 4};  // tokens 31 and 68
  EXPECT_EQ(sample(logits, greedy(), 0, {}, mask).token, 31);
  std::set<int32_t> seen;
  for (int i = 0; i < 100; ++i) seen.insert(sample(logits, untruncated(), i, {}, mask).token);
  EXPECT_THAT(seen, testing::ElementsAre(31, 68));
}

// Mask words that allow all, none and some of their tokens, with an incomplete last word.
TEST(Sampler, AMaskLeavesTheLikeliestThatItAllows) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (int round = 0; round < 500; ++round) {
    const int n = random.integer(1, 300);
    const std::vector<float> logits = random.logits(n, 3);
    std::vector<uint32_t> mask;
    for (int i = 0; i <= (n - 1) / 32; ++i) {
      const auto some = static_cast<uint32_t>(random.integer(1, 0x7ffffffe));
      mask.push_back(random.chance(0.3) ? 0 : random.chance(0.4) ? ~0u : some);
    }
    int32_t best = kNoToken;
    for (int32_t i = 0; i < n; ++i)
      if ((mask[i / 32] >> (i % 32) & 1u) != 0 && (best == kNoToken || logits[i] > logits[best])) best = i;
    ASSERT_EQ(sample(logits, greedy(), 0, {}, mask.data()).token, best) << "of " << n;
  }
}

TEST(Sampler, ForbiddingEveryTokenLeavesNone) {
  const uint32_t none = 0;
  for (const SamplingParams& params : {greedy(), untruncated(), SamplingParams{}}) {
    EXPECT_EQ(sample({1, 2, 3}, params, 0, {}, &none).token, kNoToken);
    SamplingParams biased = params;
    biased.logit_bias = {{0, -kInf}, {1, -kInf}, {2, -kInf}};
    EXPECT_EQ(sample({1, 2, 3}, biased).token, kNoToken);
  }
  const uint32_t first = 1;
  EXPECT_EQ(sample({kNan, 2, 3}, greedy(), 0, {}, &first).token, kNoToken);  // never a token outside the mask
}

TEST(Sampler, ARowOfAStepWithoutNumbersHasNoToken) {
  SamplerScratch scratch(3);
  const auto draw = [&](const std::vector<float>& logits, const SamplingParams& params, bool unwanted) {
    return draw_row(logits, {.params = &params, .unwanted = unwanted}, scratch).token;
  };
  for (const SamplingParams& params : {greedy(), untruncated(), SamplingParams{}}) {
    EXPECT_EQ(draw({kNan, kNan, kNan}, params, false), kNoToken);
    EXPECT_EQ(draw({-kInf, kNan, -kInf}, params, false), kNoToken);
    EXPECT_EQ(draw({-kInf, kNan, 1}, params, false), 2);
    EXPECT_EQ(draw({kNan, kNan, kNan}, params, true), 0);
  }
}

TEST(Sampler, NanHasNoProbability) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (int round = 0; round < 300; ++round) {
    const int n = random.integer(2, 3000);
    std::vector<float> logits = random.logits(n, 2);
    std::vector<float> without = logits;
    for (int i = 0; i < n - 1; ++i) {
      if (!random.chance(0.3)) continue;
      logits[i] = random.chance(0.5) ? kNan : -kNan;
      without[i] = -kInf;
    }
    const SamplingParams params = random_params(random, n);
    const int32_t token = sample(logits, params, round).token;
    ASSERT_FALSE(std::isnan(logits[token]));
    ASSERT_EQ(token, sample(without, params, round).token);
  }
  EXPECT_EQ(sample({kNan, kNan}, greedy()).token, 0);
  EXPECT_EQ(sample({kNan, kNan}, untruncated()).token, kNoToken);
  EXPECT_EQ(sample({-kInf, kNan}, untruncated()).token, kNoToken);
}

TEST(Sampler, InfiniteLogitsShareEverything) {
  for (const SamplingParams& params : {untruncated(), SamplingParams{}}) {
    std::set<int32_t> seen;
    for (int i = 0; i < 100; ++i) seen.insert(sample({1, kInf, -kInf, kInf, kNan}, params, i).token);
    EXPECT_THAT(seen, testing::ElementsAre(1, 3));
  }
}

TEST(Sampler, HugeLogitsAndTinyTemperatures) {
  for (float top_p : {0.5f, 0.95f, 1.0f}) {
    for (float min_p : {0.0f, 0.05f}) {
      SamplingParams params = untruncated();
      params.top_p = top_p;
      params.min_p = min_p;
      params.temperature = 1e-40f;
      EXPECT_EQ(sample({1e30f, 3e38f, -3e38f}, params).token, 1);
      EXPECT_EQ(sample({0.5f, 0.25f}, params).token, 0);
      params.temperature = 1;
      EXPECT_EQ(sample({1e30f, 3e38f, -3e38f}, params).token, 1);
    }
  }
}

TEST(Sampler, LogprobsAreOfTheRawLogits) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (int round = 0; round < 100; ++round) {
    const int n = random.integer(1, 4000);
    std::vector<float> logits = random.logits(n, 3);
    SamplingParams params = random_params(random, n);
    params.repetition_penalty = 1.5f;
    params.n_logprobs = random.integer(0, 20);
    const Sampled result = sample(logits, params, round, {0});
    std::vector<Choice> choices;
    for (int i = 0; i < n; ++i) choices.push_back({i, logits[i]});
    normalise(choices);
    ASSERT_NEAR(result.logprob, std::log(choices[result.token].p), 2e-5);
    std::sort(choices.begin(), choices.end(), by_logit);
    ASSERT_EQ(result.top.size(), static_cast<size_t>(std::min(n, params.n_logprobs)));
    for (size_t i = 0; i < result.top.size(); ++i) {
      ASSERT_EQ(result.top[i].token, choices[i].id);
      ASSERT_NEAR(result.top[i].logprob, std::log(choices[i].p), 2e-5);
    }
  }
  EXPECT_TRUE(sample({1, 2}, greedy()).top.empty());
}

TEST(Validate, NamesTheFieldAndTheValue) {
  const auto message = [](auto change) -> std::string {
    SamplingParams params;
    change(params);
    try {
      validate(params, 100);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  using P = SamplingParams;
  EXPECT_EQ(message([](P&) {}), "");
  EXPECT_EQ(message([](P& p) { p.temperature = -1; }), "temperature is -1: it must be from 0 to 100");
  EXPECT_THAT(message([](P& p) { p.temperature = kNan; }), testing::HasSubstr("temperature"));
  EXPECT_THAT(message([](P& p) { p.temperature = 999999; }), testing::HasSubstr("temperature"));
  EXPECT_THAT(message([](P& p) { p.temperature = kInf; }), testing::HasSubstr("temperature"));
  EXPECT_THAT(message([](P& p) { p.top_k = -1; }), testing::HasSubstr("top_k is -1"));
  for (float bad : {0.0f, -1.0f, 2.0f, kNan}) {
    EXPECT_THAT(message([&](P& p) { p.top_p = bad; }), testing::HasSubstr("top_p"));
    EXPECT_THAT(message([&](P& p) { p.typical_p = bad; }), testing::HasSubstr("typical_p"));
  }
  for (float bad : {-0.1f, 1.1f, kNan}) EXPECT_THAT(message([&](P& p) { p.min_p = bad; }), testing::HasSubstr("min_p"));
  for (float bad : {0.0f, -1.0f, kInf, kNan}) {
    EXPECT_THAT(message([&](P& p) { p.repetition_penalty = bad; }), testing::HasSubstr("repetition_penalty"));
  }
  for (float bad : {-1e9f, 1e9f, kInf, -kInf, kNan}) {
    EXPECT_THAT(message([&](P& p) { p.presence_penalty = bad; }), testing::HasSubstr("presence_penalty"));
    EXPECT_THAT(message([&](P& p) { p.frequency_penalty = bad; }), testing::HasSubstr("frequency_penalty"));
  }
  EXPECT_THAT(message([](P& p) { p.penalty_window = -2; }), testing::HasSubstr("penalty_window"));
  EXPECT_THAT(message([](P& p) { p.n_logprobs = 21; }), testing::HasSubstr("n_logprobs is 21"));
  EXPECT_THAT(message([](P& p) { p.n_logprobs = -2; }), testing::HasSubstr("n_logprobs"));
  EXPECT_THAT(message([](P& p) { p.logit_bias = {{100, 0.0f}}; }), testing::HasSubstr("token 100"));
  EXPECT_THAT(message([](P& p) { p.logit_bias = {{-1, 0.0f}}; }), testing::HasSubstr("token -1"));
  EXPECT_THAT(message([](P& p) { p.logit_bias = {{1, kNan}}; }), testing::HasSubstr("token 1"));
  EXPECT_THAT(message([](P& p) { p.logit_bias = {{1, kInf}}; }), testing::HasSubstr("token 1"));
  EXPECT_THAT(message([](P& p) { p.logit_bias.resize(1025); }), testing::HasSubstr("1025"));
  EXPECT_EQ(message([](P& p) { p.logit_bias = {{99, -kInf}, {0, 3.0f}}; }), "");
}

}  // namespace
}  // namespace ingot
