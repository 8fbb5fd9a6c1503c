#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "base/error.h"
#include "collector.h"

namespace ingot {
namespace {

using testing::HasSubstr;

Request make_request(std::vector<int32_t> prompt, int max_tokens, std::shared_ptr<TokenSink> sink) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sink = std::move(sink);
  return request;
}

std::string error_of(Engine& engine, const Request& request) {
  try {
    engine.submit(request);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Engine, WritesWhatTheModelSays) {
  FakeRunner runner;
  Engine engine(runner);
  const auto sink = std::make_shared<Collector>();
  Request request = make_request({1, 2, 3}, 20, sink);
  request.sampling.n_logprobs = 0;
  const Expected expected = expected_output(request, runner.info());
  engine.submit(request);
  while (engine.step()) {
  }
  EXPECT_EQ(sink->tokens, expected.tokens);
  for (size_t i = 0; i < sink->tokens.size(); ++i) EXPECT_EQ(sink->logprobs[i], -static_cast<float>(sink->tokens[i]));
  ASSERT_TRUE(sink->finish);
  EXPECT_EQ(sink->finish->reason, FinishReason::kLength);
  EXPECT_EQ(sink->finish->usage.prompt_tokens, 3);
  EXPECT_EQ(sink->finish->usage.output_tokens, 20);
  EXPECT_EQ(runner.n_steps(), 20);
  EXPECT_EQ(runner.n_tokens(), 3 + 19);
  EXPECT_EQ(engine.gauges().blocks_used, 0);
  EXPECT_EQ(engine.gauges().n_finished, 1);
}

TEST(Engine, MeasuresPrefillAndDecodeApart) {
  FakeOptions options;
  options.step_us = 2000;
  FakeRunner runner(options);
  Engine engine(runner, {.chunk = 4});
  const auto sink = std::make_shared<Collector>();
  engine.submit(make_request(std::vector<int32_t>(12, 1), 6, sink));
  while (engine.step()) {
  }
  EXPECT_GE(sink->finish->usage.prefill_ms, 6);  // 3 chunks
  EXPECT_GE(sink->finish->usage.decode_ms, 10);  // 5 more tokens
  EXPECT_GE(sink->finish->usage.queue_ms, 0);
}

TEST(Engine, StopTokensEndTheOutputUnseen) {
  FakeRunner runner;
  Engine engine(runner);
  Request request = make_request({4}, 30, nullptr);
  const std::vector<int32_t> full = expected_output(request, runner.info()).tokens;
  request.stop_tokens = {full[7], full[20]};
  for (bool ignore : {false, true}) {
    const auto sink = std::make_shared<Collector>();
    request.sink = sink;
    request.ignore_eos = ignore;
    engine.submit(request);
    while (engine.step()) {
    }
    EXPECT_EQ(sink->tokens.size(), ignore ? 30u : 7u);
    EXPECT_EQ(sink->finish->reason, ignore ? FinishReason::kLength : FinishReason::kStop);
    EXPECT_EQ(sink->finish->stop_token, ignore ? -1 : full[7]);
    EXPECT_EQ(sink->finish->usage.output_tokens, ignore ? 30 : 8);
  }
}

TEST(Engine, RunsToTheEndOfTheContext) {
  FakeRunner runner;
  Engine engine(runner);
  const auto sink = std::make_shared<Collector>();
  engine.submit(make_request({1, 2, 3}, -1, sink));
  while (engine.step()) {
  }
  EXPECT_EQ(sink->tokens.size(), 253u);
  EXPECT_EQ(sink->finish->reason, FinishReason::kLength);
}

TEST(Engine, RefusesWhatCanNeverRun) {
  FakeRunner runner;
  Engine engine(runner);
  const auto sink = std::make_shared<Collector>();
  EXPECT_THAT(error_of(engine, make_request({}, 1, sink)), HasSubstr("prompt is empty"));
  EXPECT_THAT(error_of(engine, make_request({1, 1000, 2}, 1, sink)),
              HasSubstr("prompt token 1 is 1000: the vocabulary has 1000"));
  EXPECT_THAT(error_of(engine, make_request({-1}, 1, sink)), HasSubstr("prompt token 0 is -1"));
  EXPECT_THAT(error_of(engine, make_request(std::vector<int32_t>(256, 1), -1, sink)),
              HasSubstr("the prompt has 256 tokens and the context holds 256"));
  EXPECT_THAT(error_of(engine, make_request(std::vector<int32_t>(200, 1), 57, sink)),
              HasSubstr("200 prompt tokens and max_tokens 57 are 257 tokens, but the context holds 256"));
  EXPECT_THAT(error_of(engine, make_request({1}, 0, sink)), HasSubstr("max_tokens is 0"));
  EXPECT_THAT(error_of(engine, make_request({1}, -2, sink)), HasSubstr("max_tokens is -2"));
  EXPECT_THAT(error_of(engine, make_request({1}, 2147483647, sink)), HasSubstr("max_tokens 2147483647 are 2147483648"));
  Request request = make_request({1}, 1, sink);
  request.stop_tokens = {1000};
  EXPECT_THAT(error_of(engine, request), HasSubstr("stop token 1000"));
  request.stop_tokens.assign(257, 1);
  EXPECT_THAT(error_of(engine, request), HasSubstr("257 stop tokens"));
  request.stop_tokens.clear();
  request.sampling.top_p = 0;
  EXPECT_THAT(error_of(engine, request), HasSubstr("top_p"));
  EXPECT_FALSE(engine.step());
  EXPECT_FALSE(sink->finish);
  EXPECT_EQ(error_of(engine, make_request(std::vector<int32_t>(200, 1), 56, sink)), "");
}

TEST(Engine, APoolSmallerThanTheContextLimitsIt) {
  FakeOptions options;
  options.info.pools[0].n_blocks = 4;
  FakeRunner runner(options);
  Engine engine(runner);
  const auto sink = std::make_shared<Collector>();
  EXPECT_THAT(error_of(engine, make_request(std::vector<int32_t>(64, 1), -1, sink)), HasSubstr("the context holds 64"));
  engine.submit(make_request({1}, -1, sink));
  while (engine.step()) {
  }
  EXPECT_EQ(sink->tokens.size(), 63u);
}

TEST(Engine, RefusesAChunkOfNothing) {
  FakeRunner runner;
  EXPECT_THROW(Engine(runner, {.chunk = -1}), Error);
}

TEST(Engine, CancelTakesEffectBeforeTheNextStep) {
  FakeRunner runner;
  Engine engine(runner);
  const auto first = std::make_shared<Collector>(), second = std::make_shared<Collector>();
  const RequestId id = engine.submit(make_request({1, 2}, 50, first));
  engine.submit(make_request({3}, 5, second));
  engine.step();
  engine.cancel(id);
  engine.step();
  EXPECT_EQ(first->tokens.size(), 1u);
  EXPECT_EQ(first->finish->reason, FinishReason::kCancelled);
  while (engine.step()) {
  }
  EXPECT_EQ(second->tokens.size(), 5u);
  engine.cancel(id);  // the request finished long ago
  engine.cancel(12345);
  EXPECT_FALSE(engine.step());
  EXPECT_EQ(engine.gauges().blocks_used, 0);
}

TEST(Engine, AFailedStepCostsOnlyItsOwnRequests) {
  FakeOptions options;
  options.before_forward = [](int64_t step) {
    if (step == 2) throw std::runtime_error("the device caught fire");
  };
  FakeRunner runner(options);
  std::vector<StepStats> stats;
  Engine engine(runner, {.chunk = 512, .on_step = [&](const StepStats& s) { stats.push_back(s); }});
  const auto lost = std::make_shared<Collector>(), spared = std::make_shared<Collector>();
  const Request second = make_request({3}, 5, spared);
  engine.submit(make_request({1, 2}, 50, lost));
  for (int i = 0; i < 3; ++i) engine.step();
  engine.submit(second);
  while (engine.step()) {
  }
  EXPECT_EQ(lost->tokens.size(), 2u);
  EXPECT_EQ(lost->finish->reason, FinishReason::kError);
  EXPECT_THAT(lost->finish->error, HasSubstr("the device caught fire"));
  EXPECT_EQ(spared->tokens, expected_output(second, runner.info()).tokens);
  EXPECT_EQ(engine.gauges().blocks_used, 0);
  EXPECT_EQ(engine.gauges().n_failed_steps, 1);
  ASSERT_GT(stats.size(), 3u);
  EXPECT_TRUE(stats[2].failed);
  EXPECT_FALSE(stats[1].failed || stats[3].failed);
}

// A runner whose result for one row is not a valid token: -1, or an id out of range.
class BadRow final : public Runner {
 public:
  const RunnerInfo& info() const override { return fake_.info(); }
  void forward(const Batch& batch) override { fake_.forward(batch); }
  void sample(std::span<const SampleRow> rows) override { fake_.sample(rows); }
  std::vector<Sampled> wait() override {
    std::vector<Sampled> sampled = fake_.wait();
    if (!sampled.empty()) sampled[0].token = token;
    return sampled;
  }
  int32_t token = -1;

 private:
  FakeRunner fake_;
};

TEST(Engine, ARowWithoutATokenCostsThatRequest) {
  for (int32_t token : {-1, 1000}) {
    BadRow runner;
    runner.token = token;
    Engine engine(runner);
    const auto bad = std::make_shared<Collector>(), good = std::make_shared<Collector>();
    engine.submit(make_request({1}, 5, bad));
    engine.submit(make_request({2}, 1, good));
    engine.step();
    EXPECT_EQ(bad->finish->reason, FinishReason::kError);
    EXPECT_TRUE(bad->finish->has_nan);
    EXPECT_TRUE(bad->tokens.empty());
    EXPECT_EQ(good->finish->reason, FinishReason::kLength);
  }
}

TEST(Engine, AConsumerThatThrowsEndsItsRequestOnly) {
  struct Thrower : Collector {
    void on_token(const Sampled& token) override {
      Collector::on_token(token);
      if (tokens.size() == 2) throw std::runtime_error("the consumer is full");
    }
    void on_finish(const Finish& f) override {
      Collector::on_finish(f);
      throw std::runtime_error("and stays so");
    }
  };
  FakeRunner runner;
  Engine engine(runner);
  const auto thrower = std::make_shared<Thrower>();
  const auto other = std::make_shared<Collector>();
  engine.submit(make_request({1}, 10, thrower));
  engine.submit(make_request({2}, 10, other));
  while (engine.step()) {
  }
  EXPECT_EQ(thrower->finish->reason, FinishReason::kError);
  EXPECT_EQ(thrower->finish->error, "the consumer is full");
  EXPECT_EQ(thrower->tokens.size(), 2u);
  EXPECT_EQ(other->tokens.size(), 10u);
  EXPECT_EQ(engine.gauges().blocks_used, 0);
}

TEST(Engine, StatsAddUp) {
  FakeRunner runner;
  std::vector<StepStats> stats;
  Engine engine(runner, {.chunk = 8, .on_step = [&](const StepStats& s) { stats.push_back(s); }});
  engine.submit(make_request(std::vector<int32_t>(20, 1), 4, std::make_shared<Collector>()));
  engine.submit(make_request({2}, 4, std::make_shared<Collector>()));
  while (engine.step()) {
  }
  int64_t n_tokens = 0;
  for (size_t i = 0; i < stats.size(); ++i) {
    EXPECT_EQ(stats[i].index, static_cast<int64_t>(i));
    EXPECT_TRUE(stats[i].begin <= stats[i].planned && stats[i].planned <= stats[i].filled &&
                stats[i].filled <= stats[i].submitted && stats[i].submitted <= stats[i].sampled &&
                stats[i].sampled <= stats[i].emitted);
    n_tokens += stats[i].n_tokens;
  }
  EXPECT_EQ(n_tokens, 20 + 3 + 1 + 3);
  EXPECT_EQ(stats[0].n_tokens, 9);
  EXPECT_EQ(stats[0].n_seqs, 2);
  EXPECT_EQ(stats[0].n_running, 2);
  EXPECT_EQ(stats[0].blocks_used, 2);
}

// The parts of steps in a trace: with overlap, the next step is planned, filled and submitted before the engine waits
// for the last one.
TEST(Engine, StatsShowTheOverlap) {
  for (const bool overlaps : {false, true}) {
    FakeOptions options;
    options.info.overlaps = overlaps;
    options.step_us = 500;
    FakeRunner runner(options);
    std::vector<StepStats> stats;
    Engine engine(runner, {.on_step = [&](const StepStats& s) { stats.push_back(s); }});
    for (int i = 0; i < 3; ++i) engine.submit(make_request({i}, 20, std::make_shared<Collector>()));
    while (engine.step()) {
    }
    ASSERT_EQ(stats.size(), 20u);
    for (size_t i = 0; i + 1 < stats.size(); ++i) {
      const StepStats &last = stats[i], &next = stats[i + 1];
      EXPECT_EQ(last.overlapped, overlaps);
      EXPECT_TRUE(last.submitted <= last.waiting && last.waiting <= last.sampled);
      EXPECT_LE(overlaps ? next.submitted : last.emitted, overlaps ? last.waiting : next.begin) << "step " << i;
    }
  }
}

TEST(Engine, BlocksAreBackWhenTheConsumerHearsOfTheEnd) {
  struct Watcher : Collector {
    void on_finish(const Finish& f) override {
      Collector::on_finish(f);
      seen = engine->gauges();
    }
    Engine* engine = nullptr;
    EngineGauges seen;
  };
  FakeRunner runner;
  Engine engine(runner);
  const auto watcher = std::make_shared<Watcher>();
  watcher->engine = &engine;
  engine.submit(make_request({1}, 3, watcher));
  engine.step();
  EXPECT_EQ(engine.gauges().blocks_used, 1);
  EXPECT_EQ(engine.gauges().n_running, 1);
  while (engine.step()) {
  }
  EXPECT_EQ(watcher->seen.blocks_used, 0);
  EXPECT_EQ(watcher->seen.n_running, 0);
  EXPECT_EQ(watcher->seen.n_finished, 1);
}

TEST(Engine, StopCancelsWhatIsLeft) {
  FakeRunner runner;
  Engine engine(runner);
  const auto running = std::make_shared<Collector>(), unseen = std::make_shared<Collector>();
  engine.submit(make_request({1}, 100, running));
  engine.step();
  engine.submit(make_request({1}, 100, unseen));
  engine.stop();
  EXPECT_EQ(running->finish->reason, FinishReason::kCancelled);
  EXPECT_EQ(unseen->finish->reason, FinishReason::kCancelled);
  EXPECT_THAT(error_of(engine, make_request({1}, 1, unseen)), HasSubstr("stopped"));
  EXPECT_EQ(engine.gauges().blocks_used, 0);
}

TEST(Engine, WarmsUp) {
  FakeRunner runner;
  Engine(runner).warm_up();
  EXPECT_EQ(runner.n_tokens(), 3);
  FakeOptions tiny;
  tiny.info.n_ctx = 2;
  FakeRunner tiny_runner(tiny);
  Engine(tiny_runner).warm_up();
  FakeOptions broken;
  broken.before_forward = [](int64_t) { throw std::runtime_error("no kernel"); };
  FakeRunner broken_runner(broken);
  EXPECT_THROW(Engine(broken_runner).warm_up(), Error);
}

}  // namespace
}  // namespace ingot
