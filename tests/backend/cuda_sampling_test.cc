// The draws of the GPU. Each draw equals the host sampler's draw for the same logits, parameters, seed and position,
// unless the rounding of a sum decides. The draws follow the distribution computed in float64. Skipped if the build has
// no CUDA or the machine no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "backend/sampler.h"
#include "gpu.h"
#include "test_seed.h"

namespace ingot {
namespace {

using Logits = std::vector<float>;

SamplingParams plain_params() { return {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0}; }

// Kinds of rows: as models make them, flat, with ties, all equal, with NaN and infinities.
Logits logits_of(int kind, int n_vocab, std::mt19937_64& random) {
  Logits v(n_vocab);
  std::normal_distribution<float> normal;
  for (float& x : v) x = normal(random);
  if (kind == 0) {
    for (float& x : v) x *= 3;
    for (int i = 0; i < 30; ++i) v[random() % v.size()] += 12.0f * static_cast<float>(random() % 100) / 100.0f;
  } else if (kind == 2) {
    for (float& x : v) x = std::round(x * 4) / 4;
  } else if (kind == 3) {
    std::fill(v.begin(), v.end(), -1.5f);
  } else if (kind == 4) {
    for (int i = 0; i < 50; ++i) v[random() % v.size()] = NAN, v[random() % v.size()] = -INFINITY;
    v[random() % v.size()] = 30;
  } else if (kind == 5) {
    for (int i = 0; i < 3; ++i) v[random() % v.size()] = INFINITY;
  } else if (kind == 6) {
    for (float& x : v) x *= 1e-3f;
  }
  return v;
}

struct DrawCase {
  std::vector<Logits> logits;
  std::vector<SamplingParams> params;
  std::vector<std::vector<int32_t>> history;
  std::vector<std::vector<uint32_t>> masks;  // empty: no masks
  std::vector<SampleRow> rows;

  void add(Logits row, const SamplingParams& p, std::vector<int32_t> seen = {}, std::vector<uint32_t> mask = {}) {
    logits.push_back(std::move(row));
    params.push_back(p);
    history.push_back(std::move(seen));
    masks.push_back(std::move(mask));
  }
  void finish() {
    for (size_t i = 0; i < params.size(); ++i)
      rows.push_back({&params[i], static_cast<int64_t>(i), history[i], masks[i].empty() ? nullptr : masks[i].data()});
  }
};

std::vector<Sampled> draw_on_gpu(Backend& backend, const DrawCase& c) {
  const auto n_vocab = static_cast<int64_t>(c.logits[0].size());
  const Tensor t = backend.alloc(DType::kF32, static_cast<int64_t>(c.rows.size()), n_vocab);
  Logits all;
  for (const Logits& row : c.logits) all.insert(all.end(), row.begin(), row.end());
  backend.upload(t, all.data());
  backend.sample(t, c.rows);
  return backend.wait();
}

SamplingParams random_gpu_params(std::mt19937_64& random, int n_vocab) {
  const auto one_of = [&](auto... v) {
    const std::common_type_t<decltype(v)...> all[] = {v...};
    return all[random() % std::size(all)];
  };
  SamplingParams p = plain_params();
  p.temperature = one_of(0.0f, 0.3f, 0.8f, 1.0f, 2.0f);
  p.top_k = one_of(0, 0, 1, 40, 300, 1024, 1500, 5000, 1 << 20);
  p.top_p = one_of(1.0f, 1.0f, 0.95f, 0.5f, 0.9999f, 1e-6f);
  p.min_p = one_of(0.0f, 0.0f, 0.05f, 1e-4f, 1.0f);
  p.seed = random();
  p.n_logprobs = one_of(-1, -1, 0, 5, 20);
  if (random() % 2) p.repetition_penalty = 1.3f, p.presence_penalty = 0.5f, p.frequency_penalty = 0.25f;
  if (random() % 3 == 0) p.penalty_window = -1;
  if (random() % 4 == 0) p.typical_p = 0.7f;
  if (random() % 4 == 0) p.xtc_probability = 0.7f, p.dry_multiplier = 1, p.dynatemp_range = 0.3f;  // on the host
  for (uint64_t i = random() % 3 == 0 ? 5 : 0; i > 0; --i)
    p.logit_bias.push_back({static_cast<int32_t>(random() % n_vocab), one_of(3.0f, -2.0f, -INFINITY)});
  return p;
}

bool same_logprob(float a, float b) { return a == b || std::fabs(a - b) < 2e-5f * std::max(1.0f, std::fabs(b)); }

TEST(CudaSampling, DrawsAsTheHostSampler) {
  const auto backend = gpu();
  if (!backend) GTEST_SKIP() << "no GPU";
  const uint64_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  int n_drawn = 0, n_other = 0;
  for (const int n_vocab : {7, 1000, 2049, 50021, 128256}) {
    DrawCase c;
    for (int i = 0; i < 140; ++i) {
      const SamplingParams p = random_gpu_params(random, n_vocab);
      std::vector<int32_t> seen(random() % 200);
      for (int32_t& token : seen) token = static_cast<int32_t>(random() % std::min(n_vocab, 100));
      std::vector<uint32_t> mask;
      if (random() % 4 == 0) {
        mask.resize((n_vocab + 31) / 32);
        for (uint32_t& word : mask) word = static_cast<uint32_t>(random());
        mask[0] |= 1;
      }
      c.add(logits_of(i % 7, n_vocab, random), p, seen, mask);
    }
    c.finish();
    const std::vector<Sampled> drawn = draw_on_gpu(*backend, c);
    ASSERT_EQ(drawn.size(), c.rows.size());
    SamplerScratch scratch(n_vocab);
    for (size_t i = 0; i < drawn.size(); ++i) {
      SCOPED_TRACE(fmt::format(
          "vocabulary {}, row {} of kind {}: temperature {}, top_k {}, top_p {}, min_p {}, mask {}", n_vocab, i, i % 7,
          c.params[i].temperature, c.params[i].top_k, c.params[i].top_p, c.params[i].min_p, !c.masks[i].empty()));
      const Sampled want = sample_row(c.logits[i], c.rows[i], scratch);
      ++n_drawn;
      if (drawn[i].token != want.token) {
        EXPECT_GT(c.params[i].temperature, 0.0f);  // greedy draws have no rounding
        ++n_other;
        continue;
      }
      if (want.token == kNoToken) continue;
      EXPECT_TRUE(same_logprob(drawn[i].logprob, want.logprob)) << drawn[i].logprob << " " << want.logprob;
      ASSERT_EQ(drawn[i].top.size(), want.top.size());
      for (size_t j = 0; j < want.top.size(); ++j) {
        EXPECT_EQ(drawn[i].top[j].token, want.top[j].token) << j;
        EXPECT_TRUE(same_logprob(drawn[i].top[j].logprob, want.top[j].logprob)) << j;
      }
    }
  }
  EXPECT_LE(n_other, n_drawn / 50) << "of " << n_drawn << " draws";
}

// Computes the kept tokens and their probabilities in float64, from the definitions.
std::vector<double> distribution(const Logits& logits, const SamplingParams& p) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  if (p.top_k > 0) order.resize(std::min<size_t>(order.size(), p.top_k));
  const double top = logits[order[0]];
  double total = 0, sum = 0;
  for (int i : order) total += std::exp(logits[i] - top);
  size_t n = 0;
  while (n < order.size() && (n == 0 || sum < p.top_p * total)) sum += std::exp(logits[order[n++]] - top);
  while (n > 1 && std::exp(logits[order[n - 1]] - top) < p.min_p) --n;
  order.resize(n);
  std::vector<double> probability(logits.size());
  double kept = 0;
  for (int i : order) kept += probability[i] = std::exp((logits[i] - top) / p.temperature);
  for (double& v : probability) v /= kept;
  return probability;
}

TEST(CudaSampling, HasTheRightDistribution) {
  const auto backend = gpu();
  if (!backend) GTEST_SKIP() << "no GPU";
  const uint64_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  constexpr int kRows = 256, kRounds = 40, kVocab = 3000;
  for (const SamplingParams& base :
       {plain_params(), SamplingParams{.temperature = 0.7f, .top_k = 20, .top_p = 0.9f, .min_p = 0.02f},
        SamplingParams{.temperature = 1.3f, .top_k = 0, .top_p = 0.8f, .min_p = 0}}) {
    const Logits logits = logits_of(0, kVocab, random);
    const std::vector<double> probability = distribution(logits, base);
    std::vector<double> seen(kVocab);
    for (int round = 0; round < kRounds; ++round) {
      DrawCase c;
      for (int i = 0; i < kRows; ++i) {
        SamplingParams p = base;
        p.seed = random();
        c.add(logits, p);
      }
      c.finish();
      for (const Sampled& s : draw_on_gpu(*backend, c)) {
        ASSERT_GT(probability.at(s.token), 0) << "a token that is not kept";
        seen[s.token] += 1;
      }
    }
    // Tokens with low expected counts are counted together. The statistic is near its degrees of freedom, +- 6
    // deviations.
    double statistic = 0, rare_expected = 0, rare_seen = 0;
    int degrees = -1;
    const auto count = [&](double expected, double n) {
      statistic += (n - expected) * (n - expected) / expected, ++degrees;
    };
    for (int i = 0; i < kVocab; ++i) {
      const double expected = probability[i] * kRows * kRounds;
      if (expected >= 8) count(expected, seen[i]);
      else rare_expected += expected, rare_seen += seen[i];
    }
    if (rare_expected >= 8) count(rare_expected, rare_seen);
    EXPECT_LT(statistic, degrees + 6 * std::sqrt(2.0 * std::max(degrees, 1)) + 6);
  }
}

TEST(CudaSampling, DoesNotDependOnTheBatch) {
  const auto backend = gpu();
  if (!backend) GTEST_SKIP() << "no GPU";
  std::mt19937_64 random(test_seed());
  DrawCase many;
  for (int i = 0; i < 64; ++i) {
    SamplingParams p = random_gpu_params(random, 50021);
    p.typical_p = 1;
    many.add(logits_of(i % 7, 50021, random), p, {1, 2, 3, 2});
  }
  many.finish();
  const std::vector<Sampled> together = draw_on_gpu(*backend, many);
  for (size_t i = 0; i < many.rows.size(); i += 7) {
    DrawCase one;
    one.add(many.logits[i], many.params[i], many.history[i]);
    one.finish();
    one.rows[0].position = many.rows[i].position;
    const Sampled alone = draw_on_gpu(*backend, one)[0];
    EXPECT_EQ(alone.token, together[i].token) << i;
    EXPECT_EQ(alone.logprob, together[i].logprob) << i;
  }
}

// A draft head asks for such log-probabilities. They are those of other draws, except for rounding.
TEST(CudaSampling, EstimatedLogprobs) {
  const auto backend = gpu();
  if (!backend) GTEST_SKIP() << "no GPU";
  std::mt19937_64 random(test_seed());
  SamplingParams greedy = plain_params();
  greedy.temperature = 0, greedy.n_logprobs = 0;
  for (const int n_vocab : {1, 100, 4096, 50021, 262208}) {
    DrawCase c;
    for (const int kind : {0, 1, 2, 3, 4, 6}) c.add(logits_of(kind, n_vocab, random), greedy);
    c.finish();
    const std::vector<Sampled> exact = draw_on_gpu(*backend, c);
    for (SampleRow& row : c.rows) row.estimates_logprob = true;
    const std::vector<Sampled> estimated = draw_on_gpu(*backend, c);
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_EQ(estimated[i].token, exact[i].token) << n_vocab << ", row " << i;
      EXPECT_NEAR(estimated[i].logprob, exact[i].logprob, 2e-5 * (1 - exact[i].logprob)) << n_vocab << ", row " << i;
    }
  }
}

TEST(CudaSampling, GreedyRowsOfRawLogits) {
  const auto backend = gpu();
  if (!backend) GTEST_SKIP() << "no GPU";
  std::mt19937_64 random(test_seed());
  DrawCase c;
  SamplingParams greedy = plain_params();
  greedy.temperature = 0;
  for (int kind = 0; kind < 7; ++kind) c.add(logits_of(kind, 50021, random), greedy);
  c.add(Logits(50021, NAN), greedy);
  c.add(Logits(50021, -INFINITY), greedy);
  c.finish();
  const std::vector<Sampled> drawn = draw_on_gpu(*backend, c);
  SamplerScratch scratch(50021);
  for (size_t i = 0; i < drawn.size(); ++i)
    EXPECT_EQ(drawn[i].token, draw_row(c.logits[i], c.rows[i], scratch).token) << "row " << i;
}

}  // namespace
}  // namespace ingot
