// The rules of searches with beams, with candidates that a test states. The engine's tests compare whole searches with
// those of transformers (tests/engine/beams_test.cc).
#include "backend/beam_search.h"

#include <gtest/gtest.h>

#include "backend/sampler.h"
#include "base/error.h"

namespace ingot {
namespace {

constexpr int32_t kEnd = 9;
bool is_end(int32_t token) { return token == kEnd; }

using Lists = std::vector<std::vector<TokenLogprob>>;

std::vector<std::pair<int, int32_t>> pairs(std::span<const BeamSearch::Beam> beams) {
  std::vector<std::pair<int, int32_t>> all;
  for (const BeamSearch::Beam& beam : beams) all.emplace_back(beam.parent, beam.token);
  return all;
}

TEST(BeamSearch, KeepsTheBestContinuationsOfAllBeams) {
  BeamSearch search({.n_beams = 2}, 1, 10, is_end);
  EXPECT_EQ(pairs(search.step(Lists{{{1, -1}, {2, -1.5}, {3, -4}}})),
            (std::vector<std::pair<int, int32_t>>{{0, 1}, {0, 2}}));
  EXPECT_EQ(pairs(search.step(Lists{{{4, -3}, {5, -3.1f}}, {{6, -0.5}, {7, -1}}})),
            (std::vector<std::pair<int, int32_t>>{{1, 6}, {1, 7}}));
  EXPECT_EQ(search.running()[0].tokens, (std::vector<int32_t>{2, 6}));
  EXPECT_FLOAT_EQ(search.running()[0].sum, -2);
}

// The third best of all candidates ends, so it is no text of a search with two beams.
TEST(BeamSearch, OnlyTheBestCandidatesMayEnd) {
  BeamSearch search({.n_beams = 2}, 1, 10, is_end);
  search.step(Lists{{{1, -1}, {2, -2}, {kEnd, -3}}});
  EXPECT_TRUE(search.finished().empty());
  search.step(Lists{{{kEnd, -1}, {3, -2}}, {{4, -3}, {5, -4}}});
  ASSERT_EQ(search.finished().size(), 1u);
  EXPECT_EQ(search.finished()[0].tokens, (std::vector<int32_t>{1, kEnd}));
  EXPECT_TRUE(search.finished()[0].has_ended);
  EXPECT_FLOAT_EQ(search.finished()[0].score, -1);  // -2 / 2 tokens
}

TEST(BeamSearch, EndsAsEarlyAsItIsTold) {
  const auto steps_of = [](EarlyStopping early, float length_penalty) {
    BeamSearch search({.n_beams = 1, .length_penalty = length_penalty, .early_stopping = early}, 1, 6, is_end);
    int n = 1;
    for (; !search.step(Lists{{{1, -0.5}, {kEnd, -1.4f}}}).empty() && n < 3; ++n) {}
    if (search.finished().empty())
      while (!search.step(Lists{{{kEnd, -0.1f}, {1, -2}}}).empty()) ++n;
    return n;
  };
  EXPECT_EQ(steps_of(EarlyStopping::kYes, 1), 3);
  EXPECT_EQ(steps_of(EarlyStopping::kNo, 0), 3);
  EXPECT_GT(steps_of(EarlyStopping::kNever, 2), 3);  // longer texts may become better
}

TEST(BeamSearch, AtTheLargestLengthAllTextsEnd) {
  BeamSearch search({.n_beams = 2}, 1, 1, is_end);
  EXPECT_TRUE(search.step(Lists{{{1, -1}, {2, -2}, {3, -3}}}).empty());
  ASSERT_EQ(search.finished().size(), 2u);
  EXPECT_FALSE(search.finished()[0].has_ended);
}

TEST(BeamSearch, ABeamWithoutCandidatesEnds) {
  BeamSearch search({.n_beams = 2}, 1, 5, is_end);
  search.step(Lists{{{1, -1}, {2, -2}}});
  EXPECT_EQ(pairs(search.step(Lists{{}, {{3, -1}}})), (std::vector<std::pair<int, int32_t>>{{1, 3}}));
  EXPECT_TRUE(search.step(Lists{{}}).empty());
  EXPECT_TRUE(search.finished().empty());
}

TEST(BeamSearch, RefusesBadParameters) {
  EXPECT_THROW(validate(BeamParams{.n_beams = 0}), Error);
  EXPECT_THROW(validate(BeamParams{.n_beams = kMaxBeams + 1}), Error);
  EXPECT_THROW(validate(BeamParams{.length_penalty = std::nanf("")}), Error);
}

// Penalties, biases and masks change log-probabilities, as transformers' processors do.
TEST(BeamCandidates, AreRankedAfterPenaltiesBiasAndMask) {
  const std::vector<float> logits = {1, 3, 2, 0, -1, std::nanf("")};
  double total = 0;
  for (size_t i = 0; i < 5; ++i) total += std::exp(double{logits[i]});
  const auto logprob = [&](size_t i) { return logits[i] - std::log(total); };
  SamplingParams params{.repetition_penalty = 2, .logit_bias = {{0, 0.5f}}, .n_candidates = 3};
  const std::vector<int32_t> history = {2};
  const std::vector<uint32_t> mask = {0b111101};
  SamplerScratch scratch(static_cast<int>(logits.size()));
  const Sampled drawn = draw_row(logits, {.params = &params, .history = history, .mask = mask.data()}, scratch);
  ASSERT_EQ(drawn.top.size(), 3u);
  EXPECT_EQ(drawn.top[0].token, 0);
  EXPECT_NEAR(drawn.top[0].logprob, logprob(0) + 0.5, 1e-5);
  EXPECT_EQ(drawn.top[1].token, 2);
  EXPECT_NEAR(drawn.top[1].logprob, logprob(2) * 2, 1e-5);
  EXPECT_EQ(drawn.top[2].token, 3);
  EXPECT_EQ(drawn.token, 0);
  const std::vector<uint32_t> none = {0};
  EXPECT_EQ(draw_row(logits, {.params = &params, .history = history, .mask = none.data()}, scratch).token, kNoToken);
}

}  // namespace
}  // namespace ingot
