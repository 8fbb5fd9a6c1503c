// The engine on its own thread, with consumers on their threads. Run this test under TSan too.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "base/queue.h"
#include "collector.h"
#include "engine/engine.h"
#include "test_seed.h"

namespace ingot {
namespace {

struct TokenEvent {
  Sampled token;                 // if finish is empty
  std::optional<Finish> finish;  // the last event
};

// A sink that passes a request's tokens to another thread.
class TokenStream final : public TokenSink {
 public:
  void on_token(const Sampled& token) override { events_.push({token, {}}); }
  void on_finish(const Finish& finish) override {
    events_.push({{}, finish});
    events_.close();
  }

  // The events so far, oldest first. wait() blocks until there is an event. The result is empty only after the finish.
  std::vector<TokenEvent> wait() { return events_.drain(true); }
  std::vector<TokenEvent> poll() { return events_.drain(false); }

 private:
  Queue<TokenEvent> events_;
};

FakeOptions small_pool() {
  FakeOptions options;
  options.info = {
      .n_vocab = 40, .n_ctx = 48, .block_size = 4, .pools = {{.n_blocks = 30}}, .max_batch_tokens = 16, .max_seqs = 6};
  return options;
}

// Submits, reads and cancels. Returns how many of its requests ran to the end.
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
  const unsigned seed = test_seed();
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
  EXPECT_EQ(engine.gauges().blocks_used, 0);  // all consumers have received their finish
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

// Counts on_finish calls, because the end races with cancels.
struct EndsOnce : TokenSink {
  void on_token(const Sampled&) override { EXPECT_EQ(n_ends, 0); }
  void on_finish(const Finish& f) override {
    EXPECT_EQ(n_ends, 0);
    reason = f.reason;
    ++n_ends;
  }
  FinishReason reason{};
  std::atomic<int> n_ends{0};
};

// A request is cancelled before the first step, at a token, at about the last token, twice, by two threads, or after
// its end. Unknown ids are cancelled too.
TEST(EngineThreads, CancelledFromAllSidesARequestEndsOnce) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  FakeOptions options = small_pool();
  options.step_us = 20;
  FakeRunner runner(options);
  Engine engine(runner, {.chunk = 8});
  engine.start();
  constexpr int kRequests = 600;
  std::vector<std::shared_ptr<EndsOnce>> sinks;
  for (int i = 0; i < kRequests; ++i) sinks.push_back(std::make_shared<EndsOnce>());
  std::vector<std::atomic<RequestId>> ids(kRequests);
  std::atomic<int> n_submitted{0};
  const auto cancel_some = [&](unsigned which) {
    Random random(seed + which);
    while (n_submitted < kRequests) {
      const int last = n_submitted;
      for (int k = 0; k < 3 && last > 0; ++k)
        engine.cancel(ids[static_cast<size_t>(random.integer(std::max(0, last - 20), last - 1))]);
      engine.cancel(random.chance(0.5) ? static_cast<RequestId>(random.integer(1 << 20, 1 << 30)) : 0);
      std::this_thread::sleep_for(std::chrono::microseconds(random.integer(0, 200)));
    }
  };
  std::thread one(cancel_some, 1), other(cancel_some, 2);
  Random random(seed);
  for (size_t i = 0; i < kRequests; ++i) {
    Request request = random.request(runner.info(), sinks[i]);
    request.max_tokens = random.integer(1, 4);
    request.prompt.resize(std::min<size_t>(request.prompt.size(), 20));
    request.min_tokens = 0;
    ids[i] = engine.submit(request);
    ++n_submitted;
    if (i % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random.integer(0, 300)));
  }
  one.join();
  other.join();
  for (const auto& sink : sinks)
    while (sink->n_ends == 0) std::this_thread::yield();
  for (const auto& id : ids) engine.cancel(id);
  EXPECT_EQ(engine.gauges().blocks_used, 0);
  EXPECT_EQ(engine.gauges().n_finished, kRequests);
  engine.stop();
  EXPECT_TRUE(
      std::ranges::all_of(sinks, [](const auto& s) { return s->n_ends == 1 && s->reason != FinishReason::kError; }));
  EXPECT_EQ(runner.violations(), std::vector<std::string>());
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

// An exception that is not a step's failure ends the thread, and all consumers get an error.
TEST(EngineThreads, SaysWhyItsThreadEnded) {
  FakeRunner runner;
  std::atomic<bool> broken{false};
  Engine engine(runner, {.on_step = [&](const StepStats&) {
    broken.wait(false);  // the first token has arrived by now
    throw std::runtime_error("the metrics are full");
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
  broken.notify_all();
  std::optional<Finish> finish;
  for (std::vector<TokenEvent> events = first->wait(); !events.empty(); events = first->wait())
    finish = events.back().finish;
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
