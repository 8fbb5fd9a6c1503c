// NgramProposer: compared with a search of the whole text.
#include "engine/speculate/ngram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collector.h"

namespace ingot {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Ngram, ProposesWhatFollowedTheSameTokens) {
  NgramProposer proposer;
  const Proposal found = proposer.propose(Tokens{1, 2, 3, 4, 5, 6, 9, 2, 3}, 3);
  EXPECT_THAT(found.tokens, ElementsAre(4, 5, 6));
  EXPECT_EQ(found.evidence, 2);
}

TEST(Ngram, OneEqualTokenIsNotEnough) {
  NgramProposer proposer;
  EXPECT_THAT(proposer.propose(Tokens{1, 2, 3, 9, 2}, 3).tokens, IsEmpty());
  EXPECT_THAT(proposer.propose(Tokens{1, 2, 3, 9, 2, 8}, 3).tokens, IsEmpty());
  EXPECT_THAT(NgramProposer().propose(Tokens{7}, 3).tokens, IsEmpty());
}

TEST(Ngram, TheLongestMatchWinsAndTheNewestAmongEqualOnes) {
  NgramProposer longest;
  EXPECT_THAT(longest.propose(Tokens{1, 2, 3, 4, 9, 2, 3, 5, 9, 1, 2, 3}, 1).tokens, ElementsAre(4));
  NgramProposer newest;
  EXPECT_THAT(newest.propose(Tokens{2, 3, 4, 9, 2, 3, 5, 9, 2, 3}, 1).tokens, ElementsAre(5));
}

TEST(Ngram, ARepetitionGoesOnRepeating) {
  NgramProposer proposer;
  EXPECT_THAT(proposer.propose(Tokens{1, 2, 3, 1, 2, 3}, 7).tokens, ElementsAre(1, 2, 3, 1, 2, 3, 1));
}

// A prediction is proposed from its start after any prompt.
TEST(Ngram, APredictionIsProposedFromItsStart) {
  const Tokens prompt = {5, 6, 7, 5, 6};
  NgramProposer proposer({10, 11, 12, 13});
  EXPECT_THAT(proposer.propose(prompt, 9).tokens, ElementsAre(10, 11, 12, 13));
  Tokens history = prompt;
  for (const int32_t token : {10, 99, 12}) history.push_back(token), proposer.propose(history, 9);
  history.push_back(13);  // at the end of the prediction again; nothing follows
  EXPECT_THAT(proposer.propose(history, 9).tokens, IsEmpty());
}

// The longest match that a search of the whole text finds, up to 32 tokens.
int longest_match(const Tokens& text) {
  int best = 0;
  for (size_t place = 1; place < text.size(); ++place) {
    int length = 0;
    while (length < 32 && static_cast<size_t>(length) < place &&
           text[place - 1 - length] == text[text.size() - 1 - length])
      ++length;
    best = std::max(best, length);
  }
  return best;
}

// On random texts that copy from themselves. The history grows by random numbers of tokens.
TEST(Ngram, FindsWhatASearchFinds) {
  Random random;
  SCOPED_TRACE(random.seed());
  int n_possible = 0, n_found = 0, n_right = 0, n_longest = 0;
  for (int round = 0; round < 50; ++round) {
    NgramProposer proposer;
    Tokens text;
    const int n_vocab = random.integer(4, 400);
    for (int i = 0; i < 400;) {
      int copy = text.size() > 10 && random.chance(0.5) ? random.integer(0, static_cast<int>(text.size()) - 1) : -1;
      for (int n = random.integer(1, 30); n > 0; --n, ++i)
        text.push_back(copy >= 0 ? text[copy++] : random.integer(0, n_vocab - 1));
      const Proposal found = proposer.propose(text, 5);
      const int longest = longest_match(text);
      n_possible += longest >= 2;
      if (found.tokens.empty()) continue;
      ++n_found;
      EXPECT_LE(found.evidence, longest);
      n_longest += found.evidence == longest;
      // The proposal occurs in the text after `evidence` equal tokens.
      Tokens all(text.end() - found.evidence, text.end());
      all.insert(all.end(), found.tokens.begin(), found.tokens.end());
      Tokens extended = text;
      extended.insert(extended.end(), found.tokens.begin(), found.tokens.end());
      const auto at = std::search(extended.begin(), extended.end(), all.begin(), all.end());
      EXPECT_LT(at - extended.begin(), static_cast<ptrdiff_t>(text.size()) - found.evidence);
      n_right += at != extended.end();
    }
  }
  EXPECT_GT(n_found, 300);
  EXPECT_EQ(n_right, n_found);
  EXPECT_GT(n_found, n_possible * 95 / 100);  // newer places with the same hash may hide older places
  EXPECT_GT(n_longest, n_found * 9 / 10);  // not all places are compared
}

}  // namespace
}  // namespace ingot
