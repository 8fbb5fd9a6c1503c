// The stages of the sampler against their definitions: a second implementation in doubles, with full sorts and without
// the sampler's shortcuts. Logits, histories, parameters and orders are random.
#include "backend/sampler_stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "backend/philox.h"
#include "base/error.h"
#include "test_seed.h"

namespace ingot {
namespace {

using enum SamplerStage;

class StageRandom {
 public:
  unsigned seed() const { return seed_; }
  float uniform(double low, double high) {
    return static_cast<float>(std::uniform_real_distribution<double>(low, high)(engine_));
  }
  int integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool chance(double p) { return uniform(0, 1) < p; }
  std::vector<float> logits(int n) {
    std::normal_distribution<float> normal(0, uniform(0.5, 4));
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = normal(engine_);
    return values;
  }
  std::vector<int32_t> history(int n, int n_vocab) {
    std::vector<int32_t> tokens(static_cast<size_t>(n));
    for (int32_t& token : tokens) token = integer(0, n_vocab - 1);
    return tokens;
  }
  template <class T>
  void shuffle(std::vector<T>& values) {
    std::shuffle(values.begin(), values.end(), engine_);
  }

 private:
  unsigned seed_ = test_seed();
  std::mt19937 engine_{seed_};
};

// ---- the definitions ----

struct Token {
  int32_t id;
  double logit, p = 0;
};

struct StageOracle {
  const SamplingParams& params;
  const std::vector<int32_t>& history;
  int64_t position;
  double mu;
  std::vector<Token> tokens;
  double margin = 1;  // how close a comparison was to the opposite result

  void near(double a, double b) { margin = std::min(margin, std::fabs(a - b)); }
  void softmax() {
    double top = -INFINITY, sum = 0;
    for (const Token& t : tokens) top = std::max(top, t.logit);
    for (Token& t : tokens) sum += t.p = std::exp(t.logit - top);
    for (Token& t : tokens) t.p /= sum;
  }
  void sort() {
    std::sort(tokens.begin(), tokens.end(),
              [](const Token& a, const Token& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; });
  }
  std::vector<int32_t> last(int window) const {
    const size_t n = window < 0 ? history.size() : std::min(history.size(), static_cast<size_t>(window));
    return {history.end() - static_cast<ptrdiff_t>(n), history.end()};
  }

  void penalties() {
    const auto seen = last(params.penalty_window);
    for (Token& t : tokens) {
      const auto n = std::count(seen.begin(), seen.end(), t.id);
      if (n == 0) continue;
      t.logit = t.logit > 0 ? t.logit / params.repetition_penalty : t.logit * params.repetition_penalty;
      t.logit -= params.presence_penalty + static_cast<double>(n) * params.frequency_penalty;
    }
  }
  bool breaks(int32_t id) const {
    return params.dry_breakers &&
           ((*params.dry_breakers)[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
  }
  // For each earlier position of the token: the run of tokens before it that equals the end of the history.
  void dry() {
    const auto seen = last(params.dry_window);
    const int n = static_cast<int>(seen.size());
    for (Token& t : tokens) {
      int longest = -1;
      for (int at = 1; at < n; ++at) {
        if (seen[static_cast<size_t>(at)] != t.id) continue;
        int run = 0;
        while (run < at && seen[static_cast<size_t>(at - 1 - run)] == seen[static_cast<size_t>(n - 1 - run)] &&
               !breaks(seen[static_cast<size_t>(n - 1 - run)]))
          ++run;
        longest = std::max(longest, run);
      }
      if (params.dry_multiplier > 0 && longest >= params.dry_allowed_length)
        t.logit -= params.dry_multiplier * std::pow(params.dry_base, longest - params.dry_allowed_length);
    }
  }
  void n_sigma() {
    if (params.top_n_sigma <= 0) return;
    double mean = 0, variance = 0, top = -INFINITY;
    for (const Token& t : tokens) mean += t.logit / static_cast<double>(tokens.size()), top = std::max(top, t.logit);
    for (const Token& t : tokens) variance += std::pow(t.logit - mean, 2) / static_cast<double>(tokens.size());
    const double floor = top - params.top_n_sigma * std::sqrt(variance);
    for (const Token& t : tokens) near(t.logit, floor);
    std::erase_if(tokens, [&](const Token& t) { return t.logit < floor; });
  }
  void top_k() {
    sort();
    if (params.top_k > 0 && tokens.size() > static_cast<size_t>(params.top_k))
      tokens.resize(static_cast<size_t>(params.top_k));
  }
  void keep_mass(double mass) {
    double sum = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      sum += tokens[i].p;
      near(sum, mass);
      if (sum >= mass) return tokens.resize(i + 1);
    }
  }
  void typical() {
    if (params.typical_p >= 1) return;
    softmax();
    double entropy = 0;
    for (const Token& t : tokens) entropy -= t.p > 0 ? t.p * std::log(t.p) : 0;
    const auto distance = [&](const Token& t) { return std::fabs(-std::log(t.p) - entropy); };
    std::sort(tokens.begin(), tokens.end(), [&](const Token& a, const Token& b) { return distance(a) < distance(b); });
    for (size_t i = 1; i < tokens.size(); ++i) near(distance(tokens[i - 1]), distance(tokens[i]));
    keep_mass(params.typical_p);
  }
  void top_p() {
    if (params.top_p >= 1) return;
    sort();
    softmax();
    keep_mass(params.top_p);
  }
  void min_p() {
    if (params.min_p <= 0) return;
    sort();
    softmax();
    const double floor = params.min_p * tokens[0].p;
    for (const Token& t : tokens) near(t.p / tokens[0].p, params.min_p);
    std::erase_if(tokens, [&](const Token& t) { return t.p < floor; });
  }
  void xtc() {
    if (uniform_draw(params.seed, static_cast<uint64_t>(position), 1) >= params.xtc_probability) return;
    sort();
    softmax();
    size_t n_likely = 0;
    for (const Token& t : tokens) near(t.p, params.xtc_threshold), n_likely += t.p >= params.xtc_threshold;
    if (n_likely >= 2) tokens.erase(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n_likely - 1));
  }
  void temperature() {
    double t = params.temperature;
    if (params.dynatemp_range > 0 && tokens.size() > 1) {
      softmax();
      double entropy = 0;
      for (const Token& token : tokens) entropy -= token.p > 0 ? token.p * std::log(token.p) : 0;
      const double low = std::max(0.0, t - params.dynatemp_range), high = t + params.dynatemp_range;
      t = low +
          (high - low) * std::pow(entropy / std::log(static_cast<double>(tokens.size())), params.dynatemp_exponent);
    }
    if (t > 0) {
      for (Token& token : tokens) token.logit /= t;
    } else {
      sort();
      tokens.resize(1);
    }
  }
  void mirostat() {
    sort();
    softmax();
    for (const Token& t : tokens) near(-std::log2(t.p), mu);
    std::vector<Token> kept = {tokens[0]};
    for (size_t i = 1; i < tokens.size(); ++i)
      if (-std::log2(tokens[i].p) <= mu) kept.push_back(tokens[i]);
    tokens = kept;
  }

  void apply(SamplerStage stage) {
    const bool truncates = stage != kPenalties && stage != kDry && stage != kTemperature;
    if (truncates && params.mirostat != 0) return;
    void (StageOracle::*const kOf[])() = {&StageOracle::penalties, &StageOracle::dry,     &StageOracle::n_sigma,
                                          &StageOracle::top_k,     &StageOracle::typical, &StageOracle::top_p,
                                          &StageOracle::min_p,     &StageOracle::xtc,     &StageOracle::temperature};
    (this->*kOf[static_cast<size_t>(stage)])();
  }

  // The token at u of the cumulative distribution by id; -1 if rounding may decide.
  int32_t draw() {
    std::sort(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) { return a.id < b.id; });
    softmax();
    const double u = uniform_draw(params.seed, static_cast<uint64_t>(position));
    double sum = 0;
    for (const Token& t : tokens) {
      sum += t.p;
      if (std::fabs(sum - u) < 1e-4) return -1;
      if (sum > u) {
        mu -= params.mirostat_eta * (-std::log2(t.p) - params.mirostat_tau);
        return margin < 1e-4 ? -1 : t.id;
      }
    }
    return -1;
  }
};

const std::vector<SamplerStage> kAll = {kPenalties, kDry,  kTopNSigma, kTopK,       kTypical,
                                        kTopP,      kMinP, kXtc,       kTemperature};

SamplingParams plain() {
  SamplingParams p;
  p.temperature = 1, p.top_k = 0, p.top_p = 1, p.min_p = 0;
  return p;
}

struct Drawn {
  int32_t token;
  float mu;
};

Drawn draw(const std::vector<float>& logits, const SamplingParams& params, const std::vector<int32_t>& history,
           int64_t position = 0, float mu = 0, const uint32_t* mask = nullptr) {
  SamplerScratch scratch(static_cast<int>(logits.size()));
  const SampleRow row{.params = &params, .position = position, .history = history, .mask = mask, .mirostat_mu = &mu};
  const int32_t token = sample_row(logits, row, scratch).token;
  EXPECT_TRUE(std::ranges::all_of(scratch.counts, [](int32_t n) { return n == 0; })) << "the scratch is left clean";
  return {token, mu};
}

// Draws with the sampler and with the definitions. Returns whether they could be compared.
bool compare(const std::vector<float>& logits, const SamplingParams& params, const std::vector<int32_t>& history,
             int64_t position, float mu = 0) {
  StageOracle oracle{params, history, position, mu, {}};
  for (size_t i = 0; i < logits.size(); ++i) oracle.tokens.push_back({static_cast<int32_t>(i), logits[i]});
  for (const SamplerStage stage : params.stages.empty() ? kAll : params.stages) oracle.apply(stage);
  if (params.mirostat != 0) oracle.mirostat();
  const int32_t expected = oracle.draw();
  const Drawn drawn = draw(logits, params, history, position, mu);
  if (expected < 0) return false;
  EXPECT_EQ(drawn.token, expected);
  if (params.mirostat != 0) {
    EXPECT_NEAR(drawn.mu, oracle.mu, 1e-3);
  }
  return true;
}

// Sets the parameters of one stage at random.
void turn_on(SamplerStage stage, SamplingParams& p, StageRandom& random, int n_vocab) {
  switch (stage) {
    case kPenalties:
      p.repetition_penalty = random.uniform(0.5, 2), p.presence_penalty = random.uniform(-1, 1);
      p.frequency_penalty = random.uniform(-0.5, 0.5), p.penalty_window = random.integer(-1, 30);
      break;
    case kDry: {
      p.dry_multiplier = random.uniform(0.1, 2), p.dry_base = random.uniform(1, 2);
      p.dry_allowed_length = random.integer(1, 4), p.dry_window = random.integer(-1, 60);
      auto breakers = std::make_shared<std::vector<uint32_t>>((static_cast<size_t>(n_vocab) + 31) / 32);
      if (random.chance(0.5)) (*breakers)[0] = 1u << random.integer(0, 4);
      p.dry_breakers = breakers;
      break;
    }
    case kTopNSigma: p.top_n_sigma = random.uniform(0.2, 3); break;
    case kTopK: p.top_k = random.integer(1, n_vocab + 5); break;
    case kTypical: p.typical_p = random.uniform(0.1, 0.99); break;
    case kTopP: p.top_p = random.uniform(0.1, 0.99); break;
    case kMinP: p.min_p = random.uniform(0.01, 0.5); break;
    case kXtc: p.xtc_probability = random.uniform(0.3, 1), p.xtc_threshold = random.uniform(0.01, 0.6); break;
    case kTemperature:
      p.temperature = random.chance(0.1) ? 0 : random.uniform(0.3, 2);
      if (random.chance(0.7)) p.dynatemp_range = random.uniform(0.1, 2), p.dynatemp_exponent = random.uniform(0.5, 2);
      break;
  }
}

// Few words make histories that repeat themselves.
struct StageCase {
  std::vector<float> logits;
  std::vector<int32_t> history;
  int64_t position;
};
StageCase random_case(StageRandom& random) {
  const int n_vocab = random.integer(2, 120), n_words = std::min(n_vocab, random.integer(1, 6));
  return {random.logits(n_vocab), random.history(random.integer(0, 80), n_words), random.integer(0, 1 << 20)};
}

class EachStage : public testing::TestWithParam<SamplerStage> {};

TEST_P(EachStage, FollowsItsDefinition) {
  StageRandom random;
  SCOPED_TRACE(random.seed());
  int n = 0;
  for (int i = 0; i < 400; ++i) {
    const StageCase c = random_case(random);
    SamplingParams p = plain();
    p.seed = static_cast<uint64_t>(random.integer(0, 1 << 30));
    turn_on(GetParam(), p, random, static_cast<int>(c.logits.size()));
    p.stages = {GetParam()};
    n += compare(c.logits, p, c.history, c.position);
  }
  EXPECT_GT(n, 300) << "most draws are clear enough to be compared";
}
INSTANTIATE_TEST_SUITE_P(SamplerStages, EachStage, testing::ValuesIn(kAll), [](const auto& stage) {
  return std::string(kSamplerStages[static_cast<size_t>(stage.param)]);
});

TEST(SamplerStages, InAnyOrder) {
  StageRandom random;
  SCOPED_TRACE(random.seed());
  int n = 0, n_changed = 0;
  for (int i = 0; i < 1500; ++i) {
    const StageCase c = random_case(random);
    SamplingParams p = plain();
    p.seed = static_cast<uint64_t>(random.integer(0, 1 << 30));
    std::vector<SamplerStage> order = kAll;
    random.shuffle(order);
    order.resize(static_cast<size_t>(random.integer(1, 9)));
    for (const SamplerStage stage : kAll)
      if (random.chance(0.6)) turn_on(stage, p, random, static_cast<int>(c.logits.size()));
    p.stages = order;
    n += compare(c.logits, p, c.history, c.position);
    SamplingParams other = p;
    std::ranges::reverse(other.stages);
    n_changed += draw(c.logits, p, c.history, c.position).token != draw(c.logits, other, c.history, c.position).token;
  }
  EXPECT_GT(n, 900);
  EXPECT_GT(n_changed, 30) << "the order says something";
}

TEST(SamplerStages, MirostatFollowsItsDefinition) {
  StageRandom random;
  SCOPED_TRACE(random.seed());
  int n = 0;
  for (int i = 0; i < 600; ++i) {
    const StageCase c = random_case(random);
    SamplingParams p = plain();
    p.mirostat = 2, p.mirostat_tau = random.uniform(0.5, 6), p.mirostat_eta = random.uniform(0.01, 0.5);
    p.seed = static_cast<uint64_t>(random.integer(0, 1 << 30));
    for (const SamplerStage stage : kAll)
      if (random.chance(0.4)) turn_on(stage, p, random, static_cast<int>(c.logits.size()));
    n += compare(c.logits, p, c.history, c.position, random.uniform(0.5, 10));
  }
  EXPECT_GT(n, 400);
}

// Mirostat's purpose: the mean surprise of long texts is tau, however certain the model is.
TEST(SamplerStages, MirostatComesToItsSurprise) {
  StageRandom random;
  SCOPED_TRACE(random.seed());
  SamplingParams p = plain();
  p.mirostat = 2, p.mirostat_tau = 3;
  float mu = 2 * p.mirostat_tau;
  double surprise = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<float> logits = random.logits(2000);
    const Drawn drawn = draw(logits, p, {}, i, mu);
    surprise += (mu - drawn.mu) / p.mirostat_eta + p.mirostat_tau;
    mu = drawn.mu;
  }
  EXPECT_NEAR(surprise / 3000, 3, 0.15);
}

// The default order, given by name, draws the same tokens as the fast path.
TEST(SamplerStages, TheDefaultOrderByNameIsTheDefault) {
  StageRandom random;
  SCOPED_TRACE(random.seed());
  int n_equal = 0;
  for (int i = 0; i < 500; ++i) {
    const StageCase c = random_case(random);
    SamplingParams p;
    p.seed = static_cast<uint64_t>(i);
    p.repetition_penalty = random.uniform(0.8, 1.5), p.typical_p = random.chance(0.5) ? 1 : random.uniform(0.2, 1);
    // At temperature 0 the fast path truncates nothing, so typical sampling, which may drop the likeliest, is off.
    p.temperature = p.typical_p == 1 && random.chance(0.4) ? 0 : random.uniform(0.3, 1.5);
    p.logit_bias = {{0, random.uniform(-3, 3)}, {1, -std::numeric_limits<float>::infinity()}};
    SamplingParams named = p;
    named.stages = kAll;
    EXPECT_FALSE(needs_stages(p));
    n_equal += draw(c.logits, p, c.history, c.position).token == draw(c.logits, named, c.history, c.position).token;
  }
  EXPECT_GE(n_equal, 498) << "rounding may decide a draw";
}

// "a b c d a b c": d would repeat a run of three.
TEST(SamplerStages, DryByHand) {
  const std::vector<int32_t> history = {0, 1, 2, 3, 0, 1, 2};
  const std::vector<float> logits = {1, 0, 0, 5, 0};
  SamplingParams p = plain();
  p.temperature = 0;
  EXPECT_EQ(draw(logits, p, history).token, 3);
  p.dry_multiplier = 2, p.dry_base = 2, p.dry_allowed_length = 2;  // 2 * 2^(3 - 2) = 4: 5 - 4 = 1, as much as token 0
  EXPECT_EQ(draw({1.01f, 0, 0, 5, 0}, p, history).token, 0);
  EXPECT_EQ(draw({0.99f, 0, 0, 5, 0}, p, history).token, 3);
  p.dry_allowed_length = 4;
  EXPECT_EQ(draw({1.01f, 0, 0, 5, 0}, p, history).token, 3);
  p.dry_allowed_length = 2;
  p.dry_breakers = std::make_shared<std::vector<uint32_t>>(1, 1u << 1);  // token 1 ends runs: one of 1 is left
  EXPECT_EQ(draw({1.01f, 0, 0, 5, 0}, p, history).token, 3);
}

TEST(SamplerStages, XtcKeepsTheLeastLikelyOfTheLikely) {
  SamplingParams p = plain();
  p.xtc_probability = 1, p.xtc_threshold = 0.2f, p.temperature = 0;
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.25f), std::log(0.05f)};
  EXPECT_EQ(draw(logits, p, {}).token, 2);
  p.xtc_threshold = 0.35f;
  EXPECT_EQ(draw(logits, p, {}).token, 0) << "one likely token stays";
}

TEST(SamplerStages, MasksBiasesAndOddNumbers) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  SamplingParams p = plain();
  p.xtc_probability = 0.5f;
  const uint32_t only_2 = 1u << 2, none = 0;
  EXPECT_EQ(draw({9, 8, 0, 7}, p, {}, 0, 0, &only_2).token, 2);
  EXPECT_EQ(draw({9, 8, 0, 7}, p, {}, 0, 0, &none).token, kNoToken);
  EXPECT_EQ(draw({kNan, kNan}, p, {}).token, kNoToken);
  EXPECT_EQ(draw({kNan, -kInf, 3, kNan}, p, {}).token, 2);
  EXPECT_EQ(draw({1, kInf, 3}, p, {}).token, 1);
  p.logit_bias = {{0, -kInf}};
  EXPECT_EQ(draw({9, -9}, p, {}).token, 1);
  p.logit_bias = {{1, 1e30f}};
  EXPECT_EQ(draw({9, -9}, p, {}).token, 1);
}

TEST(SamplerStages, RangesAreChecked) {
  const auto message = [](auto change) {
    SamplingParams p;
    change(p);
    try {
      validate(p, 100);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message([](SamplingParams&) {}), "");
  EXPECT_NE(message([](SamplingParams& p) { p.mirostat = 1; }).find("mirostat is 1"), std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) { p.dry_base = 0.5f; }).find("dry_base"), std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) { p.xtc_probability = NAN; }).find("xtc_probability"), std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) {
              p.dry_breakers = std::make_shared<std::vector<uint32_t>>(2);
            }).find("dry_breakers"),
            std::string::npos);
  EXPECT_EQ(find_sampler_stage("typ_p"), kTypical);
  EXPECT_EQ(find_sampler_stage("tail_free"), std::nullopt);
}

}  // namespace
}  // namespace ingot
