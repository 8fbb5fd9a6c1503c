// Shared by the tests of drafts: engine configurations, and requests with a known output.
#pragma once
#include <gtest/gtest.h>

#include "collector.h"

namespace ingot {

struct DraftCase {
  bool overlaps, states;

  // Drafts need spare rows of logits and spare slots for states.
  FakeOptions options(int n_ctx, int n_blocks) const {
    FakeOptions fake;
    fake.info = {.n_vocab = 100,
                 .n_ctx = n_ctx,
                 .block_size = 4,
                 .pools = {{.n_blocks = n_blocks}},
                 .max_batch_tokens = 64,
                 .max_seqs = 8,
                 .max_logits = 40};
    fake.info.n_states = states ? 24 : 0;
    fake.info.overlaps = overlaps;
    return fake;
  }
};

inline auto draft_cases() {
  return testing::Values(DraftCase{false, false}, DraftCase{false, true}, DraftCase{true, false},
                         DraftCase{true, true});
}

inline std::string draft_case_name(const testing::TestParamInfo<DraftCase>& test) {
  return std::string(test.param.overlaps ? "Overlapping" : "InTurn") + (test.param.states ? "Hybrid" : "");
}

inline void expect_whole(const Collector& sink, const Request& request, const RunnerInfo& info) {
  const Expected expected = expected_output(request, info);
  ASSERT_TRUE(sink.finish);
  EXPECT_EQ(sink.tokens, expected.tokens);
  EXPECT_EQ(sink.finish->reason, expected.reason) << sink.finish->error;
  EXPECT_EQ(sink.finish->stop_token, expected.stop_token);
  EXPECT_EQ(sink.finish->usage.output_tokens,
            static_cast<int>(expected.tokens.size()) + (expected.reason == FinishReason::kStop));
  for (size_t i = 0; i < sink.tokens.size(); ++i) EXPECT_EQ(sink.logprobs[i], -static_cast<float>(sink.tokens[i]));
}

}  // namespace ingot
