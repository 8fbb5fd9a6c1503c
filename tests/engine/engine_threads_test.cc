// The engine on its own thread, with consumers on theirs; run it under TSan too.
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "collector.h"
#include "engine/engine.h"
#include "engine/token_stream.h"

namespace ingot {
namespace {

FakeOptions small_pool() {
  FakeOptions options;
  options.info = {.n_vocab = 40, .n_ctx = 48, .block_size = 4, .n_blocks = 30, .max_batch_tokens = 16, .max_seqs = 6};
  return options;
}

// Submits, reads and cancels; returns how many of its requests ran to the end.
int consume(Engine& engine, const RunnerInfo& info, unsigned seed, int n_requests) {
  Random random(seed);
  int n_whole = 0;
  for (int i = 0; i < n_requests; ++i) {
    const auto stream = std::make_shared<TokenStream>();
    const Request request = random.request(info, stream);
    const Expected expected = expected_output(request, info);
    const RequestId id = engine.submit(request);
    size_t cancel_at = random.chance(0.3) ? static_cast<size_t>(random.integer(0, 20)) : 1000;
    std::vector<int32_t> tokens;
    std::optional<Finish> finish;
    while (!finish) {
      for (const TokenEvent& event : stream->wait()) {
        if (event.finish) {
          finish = event.finish;
        } else {
          tokens.push_back(event.token.token);
        }
      }
      if (tokens.size() >= cancel_at) engine.cancel(id), cancel_at = 1000;
    }
    const bool whole = finish->reason == FinishReason::kStop || finish->reason == FinishReason::kLength;
    n_whole += whole;
    EXPECT_LE(tokens.size(), expected.tokens.size());
    if (whole) {
      EXPECT_EQ(tokens, expected.tokens);
    }
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), expected.tokens.begin()));
    EXPECT_NE(finish->reason, FinishReason::kError) << finish->error;
  }
  return n_whole;
}

TEST(EngineThreads, ManyConsumers) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  FakeRunner runner(small_pool());
  Engine engine(runner, {.chunk = 8});
  engine.start();
  std::atomic<int> n_whole{0};
  std::vector<std::thread> consumers;
  for (unsigned i = 0; i < 6; ++i) {
    consumers.emplace_back([&, i] { n_whole += consume(engine, runner.info(), seed + i, 60); });
  }
  for (std::thread& consumer : consumers) consumer.join();
  EXPECT_EQ(engine.gauges().blocks_used, 0);  // all have heard of their end
  EXPECT_EQ(engine.gauges().n_finished, 360);
  engine.stop();
  EXPECT_GT(n_whole, 100);
  EXPECT_EQ(runner.violations(), std::vector<std::string>());
}

TEST(EngineThreads, StopsUnderLoad) {
  for (int round = 0; round < 20; ++round) {
    FakeOptions options = small_pool();
    options.step_us = 50;
    FakeRunner runner(options);
    Engine engine(runner, {.chunk = 8});
    engine.start();
    std::atomic<int> n_accepted{0}, n_finished{0};
    std::vector<std::thread> consumers;
    for (unsigned i = 0; i < 4; ++i) {
      consumers.emplace_back([&, i] {
        Random random(i);
        try {
          while (true) {
            const auto stream = std::make_shared<TokenStream>();
            engine.submit(random.request(runner.info(), stream));
            ++n_accepted;
            bool finished = false;
            while (!finished) {
              for (const TokenEvent& event : stream->wait()) finished = event.finish.has_value();
            }
            ++n_finished;
          }
        } catch (const Error&) {  // the engine has stopped
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    engine.stop();
    for (std::thread& consumer : consumers) consumer.join();
    ASSERT_EQ(n_accepted, n_finished);
    ASSERT_EQ(engine.gauges().blocks_used, 0);
  }
}

TEST(EngineThreads, SleepsWhenIdle) {
  FakeRunner runner;
  Engine engine(runner);
  engine.start();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(runner.n_steps(), 0);
  const auto stream = std::make_shared<TokenStream>();
  Random random;
  engine.submit(random.request(runner.info(), stream));
  bool finished = false;
  while (!finished) {
    for (const TokenEvent& event : stream->wait()) finished = event.finish.has_value();
  }
  EXPECT_TRUE(finished);
}

// What is not a step's failure ends the thread, and everyone hears of it.
TEST(EngineThreads, SaysWhyItsThreadEnded) {
  FakeOptions options;
  options.step_us = 1000;  // 254 steps: long after `broken` is set
  FakeRunner runner(options);
  std::atomic<bool> broken{false};
  Engine engine(runner, {.on_step = [&](const StepStats&) {
    if (broken) throw std::runtime_error("the metrics are full");
  }});
  engine.start();
  const auto first = std::make_shared<TokenStream>(), second = std::make_shared<TokenStream>();
  Request request;
  request.prompt = {1, 2};
  request.sink = first;
  engine.submit(request);
  EXPECT_FALSE(first->wait().empty());
  EXPECT_EQ(engine.fault(), "");
  broken = true;
  std::optional<Finish> finish;
  for (std::vector<TokenEvent> events = first->wait(); !events.empty(); events = first->wait()) finish = events.back().finish;
  ASSERT_TRUE(finish);
  EXPECT_EQ(finish->reason, FinishReason::kError);
  EXPECT_EQ(finish->error, "the metrics are full");
  EXPECT_EQ(engine.fault(), "the metrics are full");
  request.sink = second;
  EXPECT_THROW(engine.submit(request), Error);
  engine.stop();
  EXPECT_TRUE(second->poll().empty());
}

}  // namespace
}  // namespace ingot
