// Drafts: with right, wrong or random drafts, a request has the same output and the same end as without drafts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "draft_cases.h"

namespace ingot {
namespace {

class Drafts : public testing::TestWithParam<DraftCase> {
 protected:
  FakeOptions options() const { return GetParam().options(128, 200); }
};

Request drafted_request(std::vector<int32_t> prompt, int max_tokens, uint64_t seed = 0) {
  Request request{.prompt = std::move(prompt), .max_tokens = max_tokens};
  request.sampling.seed = seed;
  request.sampling.n_logprobs = 0;
  return request;
}

TEST_P(Drafts, RightOnesTakeFewerSteps) {
  FakeRunner runner(options());
  Engine engine(runner);
  Request request = drafted_request({1, 2, 3, 4, 5}, 21);
  request.proposer = fixed(right_drafts(request, runner.info(), 4));
  const auto sink = submit(engine, request);
  run(engine);
  expect_whole(*sink, request, runner.info());
  // Steps for the prompt, which sample one token, and 20 tokens in groups of five. A hybrid's prompt is cut at a
  // snapshot.
  EXPECT_EQ(runner.n_steps(), 5 + GetParam().states);
  EXPECT_EQ(engine.gauges().n_draft_tokens, 16);
  EXPECT_EQ(engine.gauges().n_accepted_tokens, 16);
}

TEST_P(Drafts, WrongOnesChangeNothing) {
  FakeRunner runner(options());
  Engine engine(runner);
  Request request = drafted_request({1, 2, 3, 4, 5}, 21);
  request.proposer = fixed(wrong_drafts(request, runner.info(), 4));
  const auto sink = submit(engine, request);
  run(engine);
  expect_whole(*sink, request, runner.info());
  EXPECT_EQ(engine.gauges().n_accepted_tokens, 0);
  // A state cannot be cut back, so every second step of a hybrid recomputes a token, without drafts.
  EXPECT_EQ(runner.n_steps(), 21 + GetParam().states);
  EXPECT_GT(engine.gauges().n_draft_tokens, GetParam().states ? 30 : 60);
  EXPECT_EQ(engine.gauges().blocks_used + engine.gauges().states_used, 0);
  EXPECT_EQ(runner.violations(), std::vector<std::string>());
}

TEST_P(Drafts, EndAtMaxTokensAndAtAnyStopToken) {
  FakeRunner runner(options());
  const std::vector<int32_t> all = expected_output(drafted_request({9, 8, 7}, 12), runner.info()).tokens;
  for (int n = 1; n <= 12; ++n) {
    for (const bool by_stop : {false, true}) {
      SCOPED_TRACE(n);
      Engine engine(runner);
      Request request = drafted_request({9, 8, 7}, by_stop ? 40 : n);
      if (by_stop) request.stop_tokens = {all[n - 1]};
      if (n % 3 == 0) request.min_tokens = n / 2;
      request.proposer = fixed(right_drafts(request, runner.info(), 5));
      const int64_t before = runner.n_steps();
      const auto sink = submit(engine, request);
      run(engine);
      expect_whole(*sink, request, runner.info());
      // Each step gives one token and its accepted drafts. No draft after the end is accepted.
      EXPECT_EQ(engine.gauges().n_accepted_tokens + runner.n_steps() - before, sink->finish->usage.output_tokens);
      EXPECT_EQ(engine.gauges().blocks_used + engine.gauges().states_used, 0);
    }
  }
}

// If a consumer ends its request at a token (for example, at a stop string), the consumer gets no later token of the
// same step.
TEST_P(Drafts, ACancelOrAnExceptionAtATokenIsTheEnd) {
  struct Ender : Collector {
    void on_token(const Sampled& token) override {
      Collector::on_token(token);
      if (static_cast<int>(tokens.size()) < at) return;
      if (throws) throw std::runtime_error("enough");
      engine->cancel(id);
    }
    Engine* engine = nullptr;
    RequestId id = 0;
    int at = 0;
    bool throws = false;
  };
  for (int at = 1; at <= 9; ++at) {
    for (const bool throws : {false, true}) {
      SCOPED_TRACE(at);
      FakeRunner runner(options());
      Engine engine(runner);
      Request request = drafted_request({5, 6, 7, 8}, 30);
      request.proposer = fixed(right_drafts(request, runner.info(), 6));
      const auto sink = std::make_shared<Ender>();
      sink->engine = &engine, sink->at = at, sink->throws = throws;
      request.sink = sink;
      sink->id = engine.submit(request);
      run(engine);
      EXPECT_EQ(sink->tokens.size(), static_cast<size_t>(at));
      EXPECT_EQ(sink->finish->usage.output_tokens, at);
      EXPECT_EQ(sink->finish->reason, throws ? FinishReason::kError : FinishReason::kCancelled);
      EXPECT_EQ(engine.gauges().blocks_used + engine.gauges().states_used, 0);
      const auto again = submit(engine, request);  // the first request left a correct cache
      run(engine);
      expect_whole(*again, request, runner.info());
      EXPECT_EQ(runner.violations(), std::vector<std::string>());
    }
  }
}

TEST_P(Drafts, TheLimitsOfAStepHold) {
  for (const int max_logits : {0, 4, 5, 7}) {
    for (const int max_batch_tokens : {4, 5, 9}) {
      FakeOptions fake = options();
      fake.info.max_seqs = 4;
      fake.info.max_logits = max_logits;
      fake.info.max_batch_tokens = max_batch_tokens;
      FakeRunner runner(fake);  // the runner refuses steps over its limits
      Engine engine(runner);
      std::vector<Request> requests;
      std::vector<std::shared_ptr<Collector>> sinks;
      for (int i = 0; i < 6; ++i) {
        requests.push_back(drafted_request({i, 1, 2}, 20));
        requests.back().proposer = fixed(right_drafts(requests.back(), runner.info(), 5));
        sinks.push_back(submit(engine, requests.back()));
      }
      run(engine);
      for (size_t i = 0; i < sinks.size(); ++i) expect_whole(*sinks[i], requests[i], runner.info());
      EXPECT_EQ(runner.violations(), std::vector<std::string>());
      EXPECT_EQ(engine.gauges().n_draft_tokens > 0, max_logits > 4);
    }
  }
}

// Many requests at once on few blocks, some with the same prompt, with a prefix cache. Some requests are preempted
// while they verify drafts.
TEST_P(Drafts, NoScheduleChangesTheOutput) {
  Random random;
  SCOPED_TRACE(random.seed());
  int64_t n_preempted = 0, n_cached = 0, n_accepted = 0;
  for (int round = 0; round < 20; ++round) {
    FakeOptions fake = options();
    fake.info.pools[0].n_blocks = 40;
    FakeRunner runner(fake);
    Engine engine(runner, {.chunk = random.integer(3, 40)});
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Collector>> sinks;
    for (int i = 0; i < 18; ++i) {
      Request request = random.request(runner.info(), nullptr);
      request.prompt.resize(std::min<size_t>(request.prompt.size(), 40));
      if (i % 3 > 0) request.prompt = requests.back().prompt;
      request.max_tokens = std::min(60, request.max_tokens);
      request.min_tokens = 0;
      const int n = random.integer(1, 7);
      if (i % 4 == 0) request.proposer = fixed(right_drafts(request, runner.info(), n));
      if (i % 4 == 1) request.proposer = fixed(wrong_drafts(request, runner.info(), n));
      if (i % 4 == 2) request.proposer = fixed(random.drafts(request, runner.info()));
      requests.push_back(request);
      sinks.push_back(submit(engine, request));
      if (random.chance(0.3)) engine.step();
    }
    run(engine);
    for (size_t i = 0; i < sinks.size(); ++i) expect_whole(*sinks[i], requests[i], runner.info());
    ASSERT_EQ(runner.violations(), std::vector<std::string>());
    EXPECT_EQ(engine.gauges().blocks_used + engine.gauges().states_used, 0);
    n_preempted += engine.gauges().n_preemptions;
    n_cached += engine.gauges().n_cached_tokens;
    n_accepted += engine.gauges().n_accepted_tokens;
  }
  EXPECT_GT(n_preempted, 10);
  EXPECT_GT(n_cached, 100);
  EXPECT_GT(n_accepted, 100);
}

// While one sequence waits for its sampled tokens, steps of other sequences continue.
TEST_P(Drafts, OthersDoNotWait) {
  FakeRunner runner(options());
  Engine engine(runner);
  Request drafted = drafted_request({1, 2}, 10);
  drafted.proposer = fixed(wrong_drafts(drafted, runner.info(), 2));
  const Request plain = drafted_request({3, 4}, 40);
  const auto slow = submit(engine, drafted), fast = submit(engine, plain);
  run(engine);
  expect_whole(*slow, drafted, runner.info());
  expect_whole(*fast, plain, runner.info());
  EXPECT_EQ(runner.n_steps(), 40);
}

TEST_P(Drafts, WhatProposeThrowsEndsOnlyTheDrafts) {
  FakeRunner runner(options());
  Engine engine(runner);
  Request request = drafted_request({1, 2}, 10);
  request.proposer = fixed([](std::span<const int32_t> history) -> std::vector<int32_t> {
    if (history.size() == 5) throw std::runtime_error("no idea");
    return {};
  });
  const auto sink = submit(engine, request);
  run(engine);
  EXPECT_EQ(sink->finish->reason, FinishReason::kLength);
  EXPECT_EQ(sink->tokens, expected_output(request, runner.info()).tokens);
  EXPECT_EQ(engine.gauges().blocks_used, 0);
}

// Without a spare slot there are no drafts. A slot that another sequence can use is not spare.
TEST(DraftsOfHybrids, NeedASpareSlot) {
  for (const int n_spare : {0, 1}) {
    FakeOptions fake;
    fake.info.max_seqs = 2;
    fake.info.n_states = 2 + n_spare;
    fake.info.max_logits = 10;
    FakeRunner runner(fake);
    Engine engine(runner);
    Request first = drafted_request({1, 2}, 60), second = drafted_request({3, 4}, 12);
    first.proposer = fixed(right_drafts(first, runner.info(), 3));
    const auto one = submit(engine, first);
    for (int i = 0; i < 4; ++i) engine.step();
    const auto two = submit(engine, second);
    engine.step();
    EXPECT_EQ(engine.gauges().n_running, 2);
    run(engine);
    expect_whole(*one, first, runner.info());
    expect_whole(*two, second, runner.info());
    EXPECT_EQ(engine.gauges().n_draft_tokens > 0, n_spare > 0);
    EXPECT_EQ(runner.violations(), std::vector<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, Drafts, draft_cases(), draft_case_name);

}  // namespace
}  // namespace ingot
