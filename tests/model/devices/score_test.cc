#include "model/devices/score.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "model/program/shapes.h"

namespace ingot {
namespace {

Config tiny() {
  Config c = config_of_shape("smollm-135m");
  c.n_layers = 1;
  c.dim = 64;
  c.n_heads = 2;
  c.n_kv_heads = 1;
  c.head_dim = c.rot_dim = 32;
  c.ffn_dim = 64;
  c.n_vocab = 50;
  return c;
}

Ranks runner(int max_logits) {
  const Config c = tiny();
  return Ranks(c, dummy_source(c, Format::F32, 7),
               {.backend = {.device = "ref"}, .n_ctx = 64, .max_batch_tokens = 16, .max_logits = max_logits}, nullptr);
}

std::vector<int32_t> some_tokens(int n) {
  std::vector<int32_t> tokens(n);
  for (int i = 0; i < n; ++i) tokens[i] = (i * 31 + 5) % 50;
  return tokens;
}

TEST(Score, RefusesTokensThatCannotBe) {
  Ranks r = runner(16);
  const auto ignore = [](int, std::span<const float>) {};
  EXPECT_THROW(for_each_logits(r, {}, 16, 0, ignore), Error);
  const std::vector<int32_t> outside = {1, 50};
  EXPECT_THROW(for_each_logits(r, outside, 16, 0, ignore), Error);
  try {
    for_each_logits(r, some_tokens(65), 16, 0, ignore);
    FAIL();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("65"), std::string::npos);
    EXPECT_NE(message.find("64"), std::string::npos);
  }
}

// A pool may be smaller than the context: for a model with windows, or because the user sets its size.
TEST(Score, ThePoolBoundsASequence) {
  const Config c = tiny();
  Ranks small(c, dummy_source(c, Format::F32, 7),
              {.backend = {.device = "ref"}, .n_ctx = 64, .max_batch_tokens = 32, .max_seqs = 2, .n_kv_tokens = 64},
              nullptr);
  Lockstep two(small, 2);
  two.feed(some_tokens(32), 16);
  two.feed(some_tokens(32), 16);
  EXPECT_EQ(two.length(), 32);
  EXPECT_THROW(two.feed(some_tokens(2), 1), Error);
}

TEST(Score, SequencesInLockstepAreEachAsIfAlone) {
  const Config c = tiny();
  constexpr int kSeqs = 3, kFirst = 5, kLen = 7;  // a step of 5 tokens each, then 2
  Ranks together(c, dummy_source(c, Format::F32, 7),
                 {.backend = {.device = "ref"},
                  .n_ctx = 20,
                  .max_batch_tokens = 16,
                  .max_seqs = kSeqs,
                  .max_logits = 16,
                  .n_kv_tokens = 96},
                 nullptr);
  Lockstep sequences(together, kSeqs);
  const std::vector<int32_t> all = some_tokens(kSeqs * kLen);
  auto step = [&](int begin, int n) {
    std::vector<int32_t> tokens;
    for (int s = 0; s < kSeqs; ++s) tokens.insert(tokens.end(), &all[s * kLen + begin], &all[s * kLen + begin] + n);
    sequences.feed(tokens, 0);
    return together.logits();
  };
  const std::vector<float> first = step(0, kFirst), second = step(kFirst, kLen - kFirst);
  for (int s = 0; s < kSeqs; ++s) {
    Ranks alone = runner(16);
    for_each_logits(
        alone, std::span(all).subspan(s * kLen, kLen), 16, 0, [&](int position, std::span<const float> logits) {
          const float* row =
              position < kFirst ? &first[(s * kFirst + position) * 50] : &second[(s * 2 + position - kFirst) * 50];
          for (int i = 0; i < 50; ++i) EXPECT_NEAR(row[i], logits[i], 1e-5f) << s << " " << position;
        });
  }
  EXPECT_EQ(sequences.length(), kLen);
  EXPECT_THROW(sequences.feed(std::vector<int32_t>(kSeqs * 14, 1), 13), Error);  // 21 of 20
}

TEST(Score, LogProbabilitiesSumToOne) {
  Ranks r = runner(16);
  int rows = 0;
  for_each_logits(r, some_tokens(40), 16, 3, [&](int position, std::span<const float> logits) {
    EXPECT_EQ(position, 3 + rows++);
    double total = 0;
    for (int token = 0; token < 50; ++token) total += std::exp(log_probability(logits, token));
    EXPECT_NEAR(total, 1.0, 1e-9);
  });
  EXPECT_EQ(rows, 37);
}

// The definition, written out: windows of 16 tokens; in each window, the predictions of tokens 9 to 15.
TEST(Score, PerplexityIsLlamaCppsDefinition) {
  Ranks r = runner(16);
  const std::vector<int32_t> tokens = some_tokens(50);
  double sum = 0;
  for (int window = 0; window < 3; ++window) {
    std::vector<int32_t> ids(tokens.begin() + window * 16, tokens.begin() + (window + 1) * 16);
    const std::vector<int32_t> targets = ids;
    ids[0] = 2;
    for_each_logits(r, ids, 16, 0, [&](int p, std::span<const float> logits) {
      if (p >= 8 && p < 15) sum -= log_probability(logits, targets[p + 1]);
    });
  }
  const Perplexity result = perplexity(r, tokens, 16, -1, 2, nullptr);
  EXPECT_EQ(result.n_scored, 21);
  EXPECT_NEAR(result.value, std::exp(sum / 21), 1e-9 * result.value);
  EXPECT_THROW(perplexity(r, some_tokens(31), 16, -1, -1, nullptr), Error);
}

}  // namespace
}  // namespace ingot
