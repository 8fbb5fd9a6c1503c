// Several requests at once: priorities, clients, deadlines, pauses, a bounded queue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "collector.h"
#include "engine/engine.h"

namespace ingot {
namespace {

using testing::HasSubstr;

Request unshared_request(int n_prompt, int max_tokens, std::shared_ptr<TokenSink> sink) {
  Request request;
  request.prompt.assign(n_prompt, 1);
  request.prompt[0] = max_tokens;  // different, so that the prompts share no blocks
  request.max_tokens = max_tokens;
  request.sink = std::move(sink);
  return request;
}

FakeOptions concurrent_options(int n_blocks, int max_seqs, bool overlaps = false) {
  FakeOptions options;
  options.info = {.n_vocab = 1000,
                  .n_ctx = 256,
                  .block_size = 16,
                  .pools = {{.n_blocks = n_blocks}},
                  .max_batch_tokens = 64,
                  .max_seqs = max_seqs};
  options.info.overlaps = overlaps;
  return options;
}

TEST(ConcurrentRequests, PriorityGoesFirst) {
  FakeRunner runner(concurrent_options(64, 1));
  Engine engine(runner);
  const auto busy = std::make_shared<Collector>(), low = std::make_shared<Collector>(),
             high = std::make_shared<Collector>();
  engine.submit(unshared_request(4, 5, busy));
  engine.step();
  engine.submit(unshared_request(4, 6, low));
  Request request = unshared_request(4, 7, high);
  request.priority = 1;
  engine.submit(request);
  while (!high->finish) ASSERT_TRUE(engine.step());
  EXPECT_FALSE(busy->finish);  // preempted, because only one sequence can run
  EXPECT_FALSE(low->finish);
  run(engine);
  EXPECT_EQ(busy->finish->usage.preemptions, 1);
  EXPECT_EQ(busy->tokens.size(), 5u);
  EXPECT_EQ(low->finish->usage.preemptions, 0);
  EXPECT_EQ(engine.gauges().n_preemptions, 1);
  request.priority = 101;
  EXPECT_THROW(engine.submit(request), Error);
}

// A thousand requests of higher priority delay a request of lower priority. More than a thousand do not delay it
// further.
TEST(ConcurrentRequests, PriorityIsNoStarvation) {
  FakeRunner runner(concurrent_options(64, 1));
  Engine engine(runner);
  const auto patient = std::make_shared<Collector>();
  engine.submit(unshared_request(1, 1, patient));
  int n_before = 0;
  for (int i = 0; i < 1500; ++i) {
    Request request = unshared_request(1, 2, std::make_shared<Collector>());
    request.priority = 1;
    engine.submit(request);
  }
  while (!patient->finish) {
    ASSERT_TRUE(engine.step());
    n_before = static_cast<int>(engine.gauges().n_finished) - 1;
  }
  EXPECT_EQ(n_before, 1023);
}

TEST(ConcurrentRequests, AClientWithManyRequestsStandsBack) {
  FakeRunner runner(concurrent_options(64, 1));
  Engine engine(runner);
  for (int i = 0; i < 1000; ++i) {
    Request request = unshared_request(1, 2, std::make_shared<Collector>());
    request.client = "eager";
    engine.submit(request);
  }
  const auto modest = std::make_shared<Collector>();
  Request request = unshared_request(1, 1, modest);
  request.client = "modest";
  engine.submit(request);
  while (!modest->finish) ASSERT_TRUE(engine.step());
  EXPECT_LT(engine.gauges().n_finished, 20);
  run(engine);
  EXPECT_EQ(engine.gauges().n_finished, 1001);
}

TEST(ConcurrentRequests, RequestsOfOneClientStayInOrder) {
  FakeRunner runner(concurrent_options(64, 1));
  Engine engine(runner);
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 60; ++i) {
    Request request = unshared_request(1, 2, sinks.emplace_back(std::make_shared<Collector>()));
    request.client = "one";
    engine.submit(request);
    for (int j = 0; j < i % 5; ++j) engine.step();
    for (size_t later = 1; later < sinks.size(); ++later)
      ASSERT_TRUE(!sinks[later]->finish || sinks[later - 1]->finish);
  }
  run(engine);
}

// Returns false if the machine stalled until the deadline and a request did not begin in time.
bool deadlines_end_what_runs_and_what_waits(std::chrono::milliseconds time) {
  FakeRunner runner(concurrent_options(64, 1));
  Engine engine(runner);
  const auto running = std::make_shared<Collector>(), waiting = std::make_shared<Collector>(),
             unbegun = std::make_shared<Collector>(), calm = std::make_shared<Collector>();
  const auto soon = Clock::now() + time;
  Request request = unshared_request(2, 200, running);
  request.deadline = soon;
  request.begin_by = soon;  // the request has begun by then
  engine.submit(request);
  request.sink = waiting;
  request.begin_by = {};
  engine.submit(request);
  request.sink = unbegun;
  request.deadline = {};
  request.begin_by = soon;
  engine.submit(request);
  engine.submit(unshared_request(2, 3, calm));
  engine.step();
  engine.step();
  if (Clock::now() >= soon) return false;
  std::this_thread::sleep_until(soon);
  run(engine);
  EXPECT_EQ(running->finish->reason, FinishReason::kDeadline);
  EXPECT_EQ(running->tokens.size(), 2u);
  EXPECT_EQ(waiting->finish->reason, FinishReason::kDeadline);
  EXPECT_EQ(waiting->finish->usage.output_tokens, 0);
  EXPECT_EQ(unbegun->finish->reason, FinishReason::kNotBegun);
  EXPECT_EQ(calm->tokens.size(), 3u);
  const EngineGauges gauges = engine.gauges();
  EXPECT_EQ(gauges.blocks_used, 0);
  EXPECT_EQ(gauges.n_finished_by[static_cast<int>(FinishReason::kDeadline)], 2);
  EXPECT_EQ(gauges.n_finished_by[static_cast<int>(FinishReason::kNotBegun)], 1);
  EXPECT_EQ(gauges.n_finished_by[static_cast<int>(FinishReason::kLength)], 1);
  return true;
}

TEST(ConcurrentRequests, DeadlinesEndWhatRunsAndWhatWaits) {
  std::chrono::milliseconds time(30);
  while (!deadlines_end_what_runs_and_what_waits(time)) time *= 2;
}

// The engine's own thread wakes for the deadline, even if nothing else happens.
TEST(ConcurrentRequests, APausedRequestMeetsItsDeadline) {
  FakeRunner runner(concurrent_options(64, 4));
  Engine engine(runner);
  const auto sink = std::make_shared<Collector>();
  Request request = unshared_request(2, 200, sink);
  request.deadline = Clock::now() + std::chrono::milliseconds(40);
  const RequestId id = engine.submit(request);
  engine.pause(id);
  engine.start();
  for (int i = 0; i < 2000 && engine.gauges().n_finished == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  engine.stop();
  EXPECT_EQ(sink->finish->reason, FinishReason::kDeadline);
  EXPECT_EQ(runner.n_steps(), 0);
}

TEST(ConcurrentRequests, APauseHoldsOneRowOnly) {
  for (const bool overlaps : {false, true}) {
    FakeRunner runner(concurrent_options(64, 4, overlaps));
    Engine engine(runner);
    const auto slow = std::make_shared<Collector>(), other = std::make_shared<Collector>();
    const Request request = unshared_request(20, 50, slow);
    const RequestId id = engine.submit(request);
    engine.submit(unshared_request(3, 60, other));
    for (int i = 0; i < 5; ++i) engine.step();
    engine.pause(id);
    engine.pause(id);
    engine.step();
    engine.step();
    const size_t n_read = slow->tokens.size();
    EXPECT_EQ(engine.gauges().n_paused, 1);
    run(engine);
    EXPECT_EQ(other->tokens.size(), 60u);
    EXPECT_EQ(slow->tokens.size(), n_read);
    EXPECT_FALSE(slow->finish);
    EXPECT_EQ(engine.gauges().blocks_used, 0);
    engine.resume(id);
    engine.resume(id);
    run(engine);
    EXPECT_EQ(slow->tokens, expected_output(request, runner.info()).tokens);
    EXPECT_EQ(slow->finish->usage.preemptions, 0);
    // The cache has all computed tokens except those of the step in flight.
    EXPECT_EQ(runner.n_tokens(), 20 + 49 + 3 + 59 + overlaps);
    engine.pause(id);  // the request finished long ago
    run(engine);
  }
}

TEST(ConcurrentRequests, APausedRequestCanBeCancelled) {
  FakeRunner runner(concurrent_options(64, 4));
  Engine engine(runner);
  const auto sink = std::make_shared<Collector>();
  const RequestId id = engine.submit(unshared_request(3, 50, sink));
  engine.step();
  engine.pause(id);
  EXPECT_FALSE(engine.step());
  engine.cancel(id);
  EXPECT_FALSE(engine.step());
  EXPECT_EQ(sink->finish->reason, FinishReason::kCancelled);
  EXPECT_EQ(engine.gauges().n_paused, 0);
}

TEST(ConcurrentRequests, TheQueueIsBounded) {
  FakeRunner runner(concurrent_options(6, 4));  // room for one sequence
  Engine engine(runner, {.max_queue = 2});
  std::vector<std::shared_ptr<Collector>> sinks;
  const auto ask = [&](int n) {
    return engine.try_submit(unshared_request(n, 20, sinks.emplace_back(std::make_shared<Collector>())));
  };
  EXPECT_TRUE(ask(70));
  engine.step();
  EXPECT_TRUE(ask(70));
  EXPECT_TRUE(ask(70));
  EXPECT_FALSE(ask(70));
  EXPECT_FALSE(sinks.back()->finish);  // a request that the engine never received
  engine.step();
  EXPECT_FALSE(ask(70));
  while (!sinks[0]->finish) engine.step();
  engine.step();  // the second request begins
  EXPECT_TRUE(ask(70));
  EXPECT_FALSE(ask(70));
  EXPECT_THROW(ask(1000), Error);
  // Submit() ignores the queue's limit.
  const RequestId id = engine.submit(unshared_request(70, 20, sinks.emplace_back(std::make_shared<Collector>())));
  EXPECT_FALSE(ask(70));
  engine.cancel(id);
  run(engine);
  EXPECT_TRUE(ask(70));
  EXPECT_TRUE(ask(70));
  EXPECT_FALSE(ask(70));
  run(engine);
}

// A preempted request waits again, but does not count towards the limit of the queue.
TEST(ConcurrentRequests, APreemptedRequestIsNotOfTheQueue) {
  FakeRunner runner(concurrent_options(8, 4));  // 128 tokens
  Engine engine(runner, {.max_queue = 1});
  std::vector<std::shared_ptr<Collector>> sinks;
  const auto ask = [&](int n_prompt, int n) {
    return engine.try_submit(unshared_request(n_prompt, n, sinks.emplace_back(std::make_shared<Collector>())));
  };
  EXPECT_TRUE(ask(30, 90));
  engine.step();
  EXPECT_TRUE(ask(30, 80));
  engine.step();
  EXPECT_EQ(engine.gauges().n_running, 2);
  EXPECT_TRUE(ask(60, 5));
  while (engine.gauges().n_preemptions == 0) ASSERT_TRUE(engine.step());
  EXPECT_GE(engine.gauges().n_waiting, 2);
  EXPECT_FALSE(ask(60, 6));  // two requests wait: one has not begun, and one has
  sinks.pop_back();
  run(engine);
  EXPECT_EQ(sinks[0]->tokens.size(), 90u);
  EXPECT_EQ(sinks[1]->tokens.size(), 80u);
  EXPECT_EQ(sinks[2]->tokens.size(), 5u);
  EXPECT_GT(sinks[1]->finish->usage.preemptions, 0);
}

// If no token can follow, the reason may be NaN in the cache. So no other request may use that cache.
TEST(ConcurrentRequests, ARequestWithNanIsNotCached) {
  class BadFirst final : public Runner {
   public:
    const RunnerInfo& info() const override { return fake.info(); }
    void forward(const Batch& batch) override { fake.forward(batch); }
    void sample(std::span<const SampleRow> rows) override { fake.sample(rows); }
    std::vector<Sampled> wait() override {
      std::vector<Sampled> sampled = fake.wait();
      if (n++ == 0) sampled[0].token = -1;
      return sampled;
    }
    FakeRunner fake{concurrent_options(64, 4)};
    int n = 0;
  };
  BadFirst runner;
  Engine engine(runner);
  const auto bad = std::make_shared<Collector>(), good = std::make_shared<Collector>(),
             again = std::make_shared<Collector>();
  for (const auto& sink : {bad, good, again}) {
    engine.submit(unshared_request(40, 2, sink));
    run(engine);
  }
  EXPECT_EQ(bad->finish->reason, FinishReason::kError);
  EXPECT_EQ(good->finish->usage.cached_tokens, 0);
  EXPECT_EQ(again->finish->usage.cached_tokens, 39);
}

// With overlap, the host's part of a step takes no device time. Host and device take at least 12 ms in sequence and 8
// ms with overlap. The test uses the best of a few runs, because the machine may be busy.
TEST(ConcurrentRequests, TheDeviceDoesNotWaitForTheHost) {
  struct Slow : Collector {
    void on_token(const Sampled& token) override {
      Collector::on_token(token);
      std::this_thread::sleep_for(std::chrono::milliseconds(4));
    }
  };
  double seconds[2] = {};
  std::vector<int32_t> tokens[2];
  for (int round = 0; round < 2 || (round < 30 && seconds[1] >= 20 * 0.01); ++round) {
    const bool overlaps = round > 0;
    FakeOptions options = concurrent_options(64, 4, overlaps);
    options.step_us = 8000;
    FakeRunner runner(options);
    Engine engine(runner);
    const auto sink = std::make_shared<Slow>();
    engine.submit(unshared_request(3, 20, sink));
    const auto start = Clock::now();
    run(engine);
    seconds[overlaps] = std::chrono::duration<double>(Clock::now() - start).count();
    tokens[overlaps] = sink->tokens;
  }
  EXPECT_EQ(tokens[0], tokens[1]);
  EXPECT_GE(seconds[0], 20 * 0.012);
  EXPECT_LT(seconds[1], 20 * 0.01);
}

}  // namespace
}  // namespace ingot
