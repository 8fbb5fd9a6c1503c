// Random load on random tiny engines: arrivals, cancellations, failures, caches of a few blocks. Whatever the schedule,
// each request's tokens are those that the model says, once and in order, no block leaks, and everyone's turn comes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <stdexcept>

#include "collector.h"
#include "engine/engine.h"

namespace ingot {
namespace {

struct Client {
  Request request;
  std::shared_ptr<Collector> sink;
  bool cancelled = false;
};

RunnerInfo random_info(Random& random) {
  RunnerInfo info;
  info.n_vocab = random.integer(5, 60);
  info.n_ctx = random.integer(2, 48);
  info.block_size = random.integer(1, 8);
  const int one_sequence = (info.n_ctx + info.block_size - 1) / info.block_size;
  info.n_blocks = random.chance(0.2) ? random.integer((2 + info.block_size - 1) / info.block_size, one_sequence)
                                     : random.integer(one_sequence, 4 * one_sequence);
  info.max_batch_tokens = random.chance(0.3) ? random.integer(1, 4) : random.integer(1, 40);
  info.max_seqs = random.integer(1, 8);
  return info;
}

class Load {
 public:
  explicit Load(unsigned seed, bool failures)
      : random_(seed),
        options_{.info = random_info(random_)},
        failure_rate_(failures ? 0.01 : 0) {
    options_.before_forward = [this](int64_t) {
      if (random_.chance(failure_rate_)) throw std::runtime_error("injected");
    };
  }

  void run(int n_arrival_steps) {
    FakeRunner runner(options_);
    EngineOptions engine_options{.chunk = random_.integer(1, 40),
                                 .on_step = [this](const StepStats& s) { observe(s); }};
    Engine engine(runner, engine_options);
    const double arrival_rate = random_.integer(1, 10) * 0.05, cancel_rate = random_.chance(0.5) ? 0.05 : 0;
    for (int i = 0; i < n_arrival_steps; ++i) {
      while (random_.chance(arrival_rate)) submit(engine);
      if (random_.chance(cancel_rate)) cancel_one(engine);
      engine.step();
      check_oldest();
    }
    while (engine.step()) check_oldest();
    EXPECT_EQ(runner.violations(), std::vector<std::string>());
    EXPECT_EQ(engine.gauges().blocks_used, 0);
    EXPECT_EQ(engine.gauges().n_running + engine.gauges().n_waiting, 0);
    EXPECT_EQ(engine.gauges().n_preemptions, n_preempted);
    check_outputs();
  }

  int64_t n_steps = 0, n_preempted = 0, n_mixed = 0, n_failed = 0, n_requests = 0, n_stopped = 0, longest_wait = 0;

 private:
  void submit(Engine& engine) {
    Client client;
    client.sink = std::make_shared<Collector>();
    client.request = random_.request(options_.info, client.sink);
    clients_[engine.submit(client.request)] = client;
    ++n_requests;
  }

  void cancel_one(Engine& engine) {
    if (clients_.empty()) return;
    auto client = clients_.begin();
    std::advance(client, random_.integer(0, static_cast<int>(clients_.size()) - 1));
    client->second.cancelled = true;
    engine.cancel(client->first);
  }

  void observe(const StepStats& stats) {
    ++n_steps;
    n_preempted += stats.n_preempted;
    n_mixed += stats.n_decodes > 0 && stats.n_tokens > stats.n_decodes;
    n_failed += stats.failed;
    EXPECT_LE(stats.n_tokens, options_.info.max_batch_tokens);
    EXPECT_GT(stats.n_tokens, 0);
    EXPECT_LE(stats.n_seqs, options_.info.max_seqs);
    EXPECT_LE(stats.blocks_used, options_.info.n_blocks);
  }

  // The oldest request that has not finished does so within a bound of becoming the oldest; so each one's turn comes.
  void check_oldest() {
    for (auto next = clients_.upper_bound(oldest_id_); next != clients_.end() && next->second.sink->finish; ++next) {
      oldest_id_ = next->first;
      oldest_since_ = n_steps;
    }
    longest_wait = std::max(longest_wait, n_steps - oldest_since_);
    ASSERT_LE(n_steps - oldest_since_, 2 * options_.info.n_ctx + 8);
  }

  void check_outputs() {
    for (const auto& [id, client] : clients_) {
      const Expected expected = expected_output(client.request, options_.info);
      const std::vector<int32_t>& got = client.sink->tokens;
      ASSERT_TRUE(client.sink->finish) << "request " << id << " never finished";
      const Finish& finish = *client.sink->finish;
      const bool cut = (finish.reason == FinishReason::kCancelled && client.cancelled) ||
                       (finish.reason == FinishReason::kError && finish.error == "injected");
      ASSERT_LE(got.size(), expected.tokens.size());
      ASSERT_TRUE(std::equal(got.begin(), got.end(), expected.tokens.begin())) << "request " << id;
      if (cut) continue;
      ASSERT_EQ(got.size(), expected.tokens.size()) << "request " << id;
      ASSERT_EQ(finish.reason, expected.reason) << finish.error;
      ASSERT_EQ(finish.stop_token, expected.stop_token);
      n_stopped += finish.reason == FinishReason::kStop;
      ASSERT_EQ(finish.usage.prompt_tokens, static_cast<int>(client.request.prompt.size()));
      ASSERT_EQ(finish.usage.output_tokens, static_cast<int>(got.size()) + (finish.reason == FinishReason::kStop));
    }
  }

  Random random_;
  FakeOptions options_;
  double failure_rate_;
  std::map<RequestId, Client> clients_;
  RequestId oldest_id_ = 0;  // all up to here have finished
  int64_t oldest_since_ = 0;
};

void run_loads(bool failures) {
  const char* given = std::getenv("INGOT_TEST_SEED");
  const unsigned base =
      given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : std::random_device()();
  int64_t n_steps = 0, n_preempted = 0, n_mixed = 0, n_failed = 0, n_requests = 0, n_stopped = 0;
  for (unsigned i = 0; i < 400; ++i) {
    SCOPED_TRACE("INGOT_TEST_SEED=" + std::to_string(base + i));
    Load load(base + i, failures);
    load.run(150);
    if (testing::Test::HasFailure()) return;
    n_steps += load.n_steps, n_preempted += load.n_preempted, n_mixed += load.n_mixed, n_failed += load.n_failed;
    n_requests += load.n_requests, n_stopped += load.n_stopped;
  }
  // The load reaches what it is meant to reach.
  EXPECT_GT(n_steps, 50'000);
  EXPECT_GT(n_requests, 10'000);
  EXPECT_GT(n_preempted, 500);
  EXPECT_GT(n_mixed, 1'000);
  EXPECT_GT(n_stopped, 500);
  EXPECT_EQ(n_failed > 0, failures);
}

TEST(EngineProperty, EveryTokenOnceAndInOrder) { run_loads(false); }

TEST(EngineProperty, AlsoWhenStepsFail) { run_loads(true); }

// The same requests under many schedules give the same output, and the schedules do differ.
TEST(EngineProperty, OutputDoesNotDependOnTheSchedule) {
  Random random;
  SCOPED_TRACE(random.seed());
  RunnerInfo info{.n_vocab = 50, .n_ctx = 40, .block_size = 4, .n_blocks = 10, .max_batch_tokens = 8, .max_seqs = 8};
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) requests.push_back(random.request(info, nullptr));
  for (int chunk = 1; chunk <= 41; chunk += 4) {
    for (int n_blocks : {10, 13, 100}) {
      FakeOptions options;
      options.info = info;
      options.info.n_blocks = n_blocks;
      options.info.max_batch_tokens = random.integer(1, 41);
      FakeRunner runner(options);
      Engine engine(runner, {.chunk = chunk});
      std::vector<std::shared_ptr<Collector>> sinks;
      for (Request request : requests) {
        sinks.push_back(std::make_shared<Collector>());
        request.sink = sinks.back();
        engine.submit(std::move(request));
      }
      while (engine.step()) {
      }
      for (size_t i = 0; i < requests.size(); ++i) {
        ASSERT_EQ(sinks[i]->tokens, expected_output(requests[i], options.info).tokens);
      }
    }
  }
}

}  // namespace
}  // namespace ingot
