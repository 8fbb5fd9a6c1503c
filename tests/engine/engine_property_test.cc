// Random load on random tiny engines: arrivals, drafts, images, cancellations, failures, pauses, priorities, deadlines,
// caches of a few blocks, overlapping steps, constraints that workers follow. For every schedule, each request gets the
// model's tokens once and in order, no block leaks, and every request finishes.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>

#include "collector.h"
#include "drawn_constraint.h"
#include "engine/engine.h"
#include "test_seed.h"

namespace ingot {
namespace {

struct Client {
  Request request;
  std::shared_ptr<Collector> sink;
  bool cancelled = false;
  bool late = false;  // a deadline may end the request
};

enum class Kind { kPlain, kFailing, kMixed };

RunnerInfo random_info(Random& random) {
  RunnerInfo info;
  info.n_vocab = random.integer(5, 60);
  info.n_ctx = random.integer(2, 48);
  info.block_size = random.integer(1, 8);
  const int one_sequence = (info.n_ctx + info.block_size - 1) / info.block_size;
  info.pools = {{.n_blocks = random.chance(0.2)
                                 ? random.integer((2 + info.block_size - 1) / info.block_size, one_sequence)
                                 : random.integer(one_sequence, 4 * one_sequence)}};
  info.max_batch_tokens = random.chance(0.3) ? random.integer(1, 4) : random.integer(1, 40);
  info.max_seqs = random.integer(1, 8);
  if (random.chance(0.5)) info.max_logits = info.max_seqs + random.integer(0, 20);
  if (random.chance(0.5))
    info.n_states = info.max_seqs + (random.chance(0.2) ? 0 : random.integer(1, 3 * info.max_seqs));
  if (random.chance(0.25)) {
    info.pools[0].window = random.integer(2, 12);
    const int least = most_blocks_needed(info.pools[0].window, info.block_size);  // may be less than a sequence has
    if (random.chance(0.5)) info.pools[0].n_blocks = random.integer(least, 2 * least);
  }
  for (int more = random.chance(0.4) ? random.integer(1, 3) : 0; more > 0; --more) {
    const int widest = info.pools[0].window > 0 ? info.pools[0].window : 16;
    const int window = random.chance(0.8) || info.pools[0].window > 0 ? random.integer(2, widest) : 0;
    const int least = window > 0 ? most_blocks_needed(window, info.block_size) : one_sequence;
    info.pools.push_back({.n_blocks = random.integer(least, 3 * least), .window = window});
  }
  if (random.chance(0.25)) {
    const int max_rows = random.integer(1, 12), blocks = (max_rows + info.block_size - 1) / info.block_size;
    info.source = {.dim = random.integer(1, 3), .max_rows = max_rows, .n_blocks = random.integer(blocks, 4 * blocks)};
  }
  info.overlaps = random.chance(0.6);
  if (info.overlaps && random.chance(0.4)) info.n_stages = random.integer(2, 4);
  if (random.chance(0.5)) info.takes_embeddings = true, info.embedding_dim = random.integer(1, 3);
  return info;
}

class Load {
 public:
  Load(unsigned seed, Kind kind)
      : random_(seed),
        kind_(kind),
        options_{.info = random_info(random_)},
        drafts_(random_.chance(0.5)),
        constrained_(random_.chance(0.4)),
        failure_rate_(kind == Kind::kFailing ? 0.01 : 0) {
    const auto fail = [this] {
      if (random_.chance(failure_rate_)) throw std::runtime_error("injected");
    };
    options_.before_forward = [fail](int64_t) { fail(); };
    options_.before_wait = fail;
  }

  void run(int n_arrival_steps) {
    FakeRunner runner(options_);
    EngineOptions engine_options{.chunk = random_.integer(1, 40),
                                 .on_step = [this](const StepStats& s) { observe(s); },
                                 .prefix_cache = random_.chance(0.8)};
    engine_options.quick.max_work = static_cast<size_t>(random_.integer(0, 3) * random_.integer(0, 200));
    engine_options.run_slow = [this](std::function<void()> job) { jobs_.push_back(std::move(job)); };
    for (int i = 0; i < 3; ++i)
      constraints_.push_back(drawn_constraint(static_cast<uint64_t>(random_.integer(0, 1 << 30)), options_.info.n_vocab,
                                              static_cast<size_t>(random_.integer(0, 4))));
    Engine engine(runner, engine_options);
    const double arrival_rate = random_.integer(1, 10) * 0.05, cancel_rate = random_.chance(0.5) ? 0.05 : 0;
    for (int i = 0; i < n_arrival_steps; ++i) {
      while (random_.chance(arrival_rate)) submit(engine);
      if (random_.chance(cancel_rate)) cancel_one(engine);
      if (kind_ == Kind::kMixed && random_.chance(0.2)) pause_or_resume(engine);
      step(engine);
      check_oldest();
    }
    for (const auto& [id, client] : clients_) engine.resume(id);
    while (step(engine)) check_oldest();
    EXPECT_EQ(runner.violations(), std::vector<std::string>());
    EXPECT_EQ(engine.gauges().blocks_used, 0);
    EXPECT_EQ(engine.gauges().states_used, 0);
    EXPECT_EQ(engine.gauges().n_running + engine.gauges().n_waiting + engine.gauges().n_paused, 0);
    EXPECT_EQ(engine.gauges().n_computed_tokens, n_tokens);
    n_preempted += engine.gauges().n_preemptions;
    n_forced += engine.gauges().n_forced_tokens;
    n_accepted += engine.gauges().n_accepted_tokens;
    n_rejected += engine.gauges().n_draft_tokens - engine.gauges().n_accepted_tokens;
    n_cached += engine.gauges().n_cached_tokens;
    if (options_.info.n_states > 0) n_cached_states += engine.gauges().n_cached_tokens;
    check_outputs();
  }

  int64_t n_tokens = 0, n_cached = 0, n_cached_states = 0, n_late = 0, n_steps = 0, n_preempted = 0, n_mixed = 0,
          n_failed = 0, n_scored = 0;
  int64_t n_jobs = 0, n_forced = 0;
  int64_t n_requests = 0, n_stopped = 0, longest_wait = 0, n_accepted = 0, n_rejected = 0;

 private:
  // Before a step, a worker may have run jobs, in any order.
  bool step(Engine& engine) {
    while (!jobs_.empty() && random_.chance(0.5)) {
      const auto job = jobs_.begin() + random_.integer(0, static_cast<int>(jobs_.size()) - 1);
      (*job)();
      jobs_.erase(job);
      ++n_jobs;
    }
    return engine.step();
  }

  void submit(Engine& engine) {
    Client client;
    client.sink = std::make_shared<Collector>();
    client.request = random_.request(options_.info, client.sink);
    if (constrained_ && random_.chance(0.7)) {
      client.request.constraint = constraints_[static_cast<size_t>(random_.integer(0, 2))];
      if (random_.chance(0.5)) client.request.sampling.n_logprobs = -1;  // text that is forced needs no sampling
    }
    client.request.cache_salt = std::string(static_cast<size_t>(random_.integer(0, 1)), 'x');
    if (kind_ == Kind::kMixed) {
      client.request.priority = random_.integer(-2, 2);
      client.request.client = std::string(static_cast<size_t>(random_.integer(0, 3)), 'c');
      const auto soon = Clock::now() + std::chrono::microseconds(random_.integer(0, 500));
      if (random_.chance(0.1)) client.request.deadline = soon;
      if (random_.chance(0.1)) client.request.begin_by = soon;
      client.late = client.request.deadline == soon || client.request.begin_by == soon;
    }
    if (drafts_) client.request.proposer = random_.proposer(client.request, options_.info);
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

  void pause_or_resume(Engine& engine) {
    if (clients_.empty()) return;
    auto client = clients_.begin();
    std::advance(client, random_.integer(0, static_cast<int>(clients_.size()) - 1));
    random_.chance(0.5) ? engine.pause(client->first) : engine.resume(client->first);
  }

  void observe(const StepStats& stats) {
    ++n_steps;
    n_tokens += stats.n_tokens;
    n_mixed += stats.n_decodes > 0 && stats.n_tokens > stats.n_decodes;
    n_failed += stats.failed;
    EXPECT_LE(stats.n_tokens, options_.info.max_batch_tokens);
    EXPECT_GT(stats.n_tokens, 0);
    EXPECT_LE(stats.n_seqs, options_.info.max_seqs);
    EXPECT_LE(stats.blocks_used, options_.info.pools[0].n_blocks);
  }

  // The oldest unfinished request finishes within a bounded number of steps after it becomes the oldest. So every
  // request finishes.
  void check_oldest() {
    for (auto next = clients_.upper_bound(oldest_id_); next != clients_.end() && next->second.sink->finish; ++next) {
      oldest_id_ = next->first;
      oldest_since_ = n_steps;
    }
    longest_wait = std::max(longest_wait, n_steps - oldest_since_);
    if (kind_ != Kind::kMixed && !constrained_) {
      // A sequence with drafts waits for each of its steps, and may recompute tokens. With stages, a step has only a
      // part of the sequences.
      ASSERT_LE(n_steps - oldest_since_, (drafts_ ? 4 : 2) * options_.info.n_stages * options_.info.n_ctx + 8);
    }
  }

  void check_outputs() {
    for (const auto& [id, client] : clients_) {
      const Expected expected = expected_output(client.request, options_.info);
      const std::vector<int32_t>& got = client.sink->tokens;
      ASSERT_TRUE(client.sink->finish) << "request " << id << " never finished";
      const Finish& finish = *client.sink->finish;
      const bool late = finish.reason == FinishReason::kDeadline || finish.reason == FinishReason::kNotBegun;
      n_late += late;
      if (finish.reason == FinishReason::kNotBegun) {
        ASSERT_TRUE(got.empty());
      }
      const bool cut = (finish.reason == FinishReason::kCancelled && client.cancelled) || (late && client.late) ||
                       (finish.reason == FinishReason::kError && finish.error == "injected");
      ASSERT_LE(got.size(), expected.tokens.size());
      ASSERT_TRUE(std::equal(got.begin(), got.end(), expected.tokens.begin())) << "request " << id;
      check_scores(client, cut);
      if (cut) continue;
      ASSERT_EQ(got.size(), expected.tokens.size()) << "request " << id << " " << finish.error;
      ASSERT_EQ(finish.reason, expected.reason) << finish.error;
      ASSERT_EQ(finish.stop_token, expected.stop_token);
      n_stopped += finish.reason == FinishReason::kStop;
      ASSERT_EQ(finish.usage.prompt_tokens, static_cast<int>(client.request.prompt.size()));
      ASSERT_EQ(finish.usage.output_tokens, static_cast<int>(got.size()) + (finish.stop_token >= 0));
    }
  }

  // The fake model's log-probability of a token is the negative of the token.
  void check_scores(const Client& client, bool cut) {
    const std::vector<Sampled>& scored = client.sink->scored;
    const std::vector<int32_t>& prompt = client.request.prompt;
    const bool wanted = client.request.prompt_logprobs >= 0;
    ASSERT_LE(scored.size(), wanted ? prompt.size() - 1 : 0);
    if (!cut || !client.sink->tokens.empty()) {
      ASSERT_EQ(scored.size(), wanted ? prompt.size() - 1 : 0);
    }
    for (size_t i = 0; i < scored.size(); ++i) {
      ASSERT_EQ(scored[i].token, prompt[i + 1]);
      ASSERT_EQ(scored[i].logprob, -static_cast<float>(prompt[i + 1]));
    }
    n_scored += static_cast<int64_t>(scored.size());
  }

  Random random_;
  const Kind kind_;
  FakeOptions options_;
  const bool drafts_, constrained_;
  const double failure_rate_;
  std::vector<std::shared_ptr<Constraint>> constraints_;
  std::vector<std::function<void()>> jobs_;  // for workers
  std::map<RequestId, Client> clients_;
  RequestId oldest_id_ = 0;  // all requests up to this one have finished
  int64_t oldest_since_ = 0;
};

void run_loads(Kind kind) {
  const unsigned base = test_seed();
  const char* rounds = std::getenv("INGOT_TEST_ROUNDS");  // 2000 rounds are 10^6 steps
  const int n_rounds = rounds != nullptr ? std::atoi(rounds) : 250;
  Load sum(0, kind);
  for (int i = 0; i < n_rounds; ++i) {
    SCOPED_TRACE("INGOT_TEST_SEED=" + std::to_string(base + static_cast<unsigned>(i)));
    Load load(base + static_cast<unsigned>(i), kind);
    load.run(150);
    if (testing::Test::HasFailure()) return;
    sum.n_steps += load.n_steps, sum.n_preempted += load.n_preempted, sum.n_mixed += load.n_mixed;
    sum.n_failed += load.n_failed, sum.n_requests += load.n_requests, sum.n_stopped += load.n_stopped;
    sum.n_jobs += load.n_jobs, sum.n_forced += load.n_forced;
    sum.n_accepted += load.n_accepted, sum.n_rejected += load.n_rejected;
    sum.n_scored += load.n_scored, sum.n_cached += load.n_cached, sum.n_cached_states += load.n_cached_states,
        sum.n_late += load.n_late;
  }
  std::printf("%lld steps, %lld requests\n", static_cast<long long>(sum.n_steps),
              static_cast<long long>(sum.n_requests));
  // Checks that the load covers all cases. Each bound is far below the values of all seeds, because a few rounds
  // contribute most of a sum.
  EXPECT_GT(sum.n_steps, 100 * n_rounds);
  EXPECT_GT(sum.n_requests, 20 * n_rounds);
  EXPECT_GT(sum.n_preempted, n_rounds / 4);
  EXPECT_GT(sum.n_mixed, 2 * n_rounds);
  EXPECT_GT(sum.n_stopped, n_rounds);
  EXPECT_GT(sum.n_cached, n_rounds / 4);
  EXPECT_GT(sum.n_cached_states, 0);
  EXPECT_GT(sum.n_accepted, n_rounds);
  EXPECT_GT(sum.n_rejected, n_rounds);
  EXPECT_GT(sum.n_scored, 2 * n_rounds);
  EXPECT_GT(sum.n_jobs, 4 * n_rounds);
  EXPECT_GT(sum.n_forced, n_rounds);
  EXPECT_EQ(sum.n_failed > 0, kind == Kind::kFailing);
  EXPECT_EQ(sum.n_late > 0, kind == Kind::kMixed);
}

TEST(EngineProperty, EveryTokenOnceAndInOrder) { run_loads(Kind::kPlain); }

TEST(EngineProperty, AlsoWhenStepsFail) { run_loads(Kind::kFailing); }

TEST(EngineProperty, AlsoWithPrioritiesPausesAndDeadlines) { run_loads(Kind::kMixed); }

// The same requests give the same output under many different schedules.
TEST(EngineProperty, OutputDoesNotDependOnTheSchedule) {
  Random random;
  SCOPED_TRACE(random.seed());
  RunnerInfo info{
      .n_vocab = 50, .n_ctx = 40, .block_size = 4, .pools = {{.n_blocks = 10}}, .max_batch_tokens = 8, .max_seqs = 8};
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) requests.push_back(random.request(info, nullptr));
  for (int chunk = 1; chunk <= 41; chunk += 4) {
    for (int n_blocks : {10, 13, 100}) {
      FakeOptions options;
      options.info = info;
      options.info.pools[0].n_blocks = n_blocks;
      options.info.max_batch_tokens = random.integer(1, 41);
      options.info.overlaps = random.chance(0.5);
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
