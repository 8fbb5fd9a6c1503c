// An oracle stays right with a model whose own text changes.
#include "engine/speculate/oracle.h"

#include <gtest/gtest.h>

#include <set>

#include "collector.h"
#include "engine/engine.h"

namespace ingot {
namespace {

TEST(Oracle, GivenAnswersAreKnownWhateverTheModelComputes) {
  FakeOptions fake;
  fake.info.max_logits = fake.info.max_seqs + kMaxDrafts;
  std::vector<int32_t> first;
  for (const uint64_t seed : {1, 2, 3}) {  // of the model's own text
    for (const bool overlaps : {false, true}) {
      fake.info.overlaps = overlaps;
      FakeRunner model(fake);
      GivenAnswers given(model);
      Engine engine(given);
      Request request{.prompt = {5, 6, 7}, .max_tokens = 100};
      request.sampling.seed = seed;
      const auto sink = std::make_shared<Collector>();
      request.sink = sink;
      if (!first.empty()) request.proposer = std::make_shared<OracleProposer>(first, 3, fake.info.n_vocab, 1, 0, 4);
      engine.submit(std::move(request));
      while (engine.step()) {}
      EXPECT_EQ(sink->tokens.size(), 100);
      if (first.empty()) first = sink->tokens;
      EXPECT_EQ(sink->tokens, first);
      EXPECT_EQ(engine.gauges().n_draft_tokens, engine.gauges().n_accepted_tokens);
      EXPECT_EQ(engine.gauges().n_draft_tokens > 0, seed > 1 || overlaps);
      EXPECT_EQ(model.violations(), std::vector<std::string>());
    }
  }
  EXPECT_EQ(std::set<int32_t>(first.begin(), first.end()).size(), 100) << "text of different tokens";
}

}  // namespace
}  // namespace ingot
