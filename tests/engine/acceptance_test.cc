// Acceptance and DraftYield: estimates from counts of right drafts.
#include "engine/speculate/acceptance.h"

#include <gtest/gtest.h>

namespace ingot {
namespace {

TEST(Acceptance, LevelsRiseWithTheEvidence) {
  EXPECT_EQ(Acceptance::level_of_match(0), 0u);
  EXPECT_EQ(Acceptance::level_of_match(2), 1u);
  EXPECT_EQ(Acceptance::level_of_match(7), 2u);
  EXPECT_EQ(Acceptance::level_of_match(1000), 4u);
  size_t last = 0;
  for (const double p : {0.0, 0.1, 0.15, 0.3, 0.4, 0.6, 0.75, 0.85, 0.95, 1.0}) {
    EXPECT_GE(Acceptance::level_of_probability(p), last) << p;
    last = Acceptance::level_of_probability(p);
  }
  EXPECT_EQ(Acceptance::level_of_probability(0), 0u);
  EXPECT_EQ(last, 7u);
}

// Probabilities are believed until drafts show something else. Levels do not change each other.
TEST(Acceptance, ProbabilitiesAreBelievedAndThenMeasured) {
  Acceptance prior(256, Acceptance::Evidence::kProbability), own(32);
  const size_t low = Acceptance::level_of_probability(0.05), high = Acceptance::level_of_probability(0.99);
  EXPECT_LT(own.of(low, prior), 0.1);
  EXPECT_GT(own.of(high, prior), 0.9);
  for (int i = 0; i < 100; ++i) own.add(high, i % 2 == 0), prior.add(high, i % 2 == 0);
  EXPECT_NEAR(own.of(high, prior), 0.5, 0.05);
  EXPECT_LT(own.of(low, prior), 0.1);
}

TEST(DraftYield, FollowsTheGuesses) {
  DraftYield prior(256), own(32);
  EXPECT_EQ(own.n_drafts(prior), 2);
  EXPECT_EQ(own.n_right(prior), 1);
  for (int i = 0; i < 1000; ++i) own.add(6, 5), prior.add(6, 5);
  EXPECT_NEAR(own.n_drafts(prior), 6, 0.1);
  EXPECT_NEAR(own.n_right(prior), 5, 0.1);
  for (int i = 0; i < 1000; ++i) own.add(0, 0), prior.add(0, 0);  // guesses whose first draft is improbable
  EXPECT_LT(own.n_drafts(prior), 0.1);
}

}  // namespace
}  // namespace ingot
