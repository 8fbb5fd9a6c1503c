// The engine's own cost, without a model: planning and filling a decode step of n sequences, finding a long prompt in
// the prefix cache, and a whole step on the fake runner.
#include <benchmark/benchmark.h>

#include <memory>

#include "engine/batch_builder.h"
#include "engine/engine.h"
#include "engine/fake_runner.h"
#include "engine/prefix_cache.h"

namespace ingot {
namespace {

// n sequences of about 2000 tokens, each with its own blocks. Each step is planned, filled and completed as in the
// engine.
void plan_and_fill(benchmark::State& state) {
  const int n = static_cast<int>(state.range(0)), n_prompt = 2000, n_blocks = n * 300;
  const SchedulerLimits limits{
      .max_batch_tokens = 8192, .max_seqs = n, .chunk = 8192, .block_size = 16, .pools = {{.n_blocks = n_blocks}}};
  Scheduler scheduler(limits);
  BatchBuilder builder(limits, 8192);
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (int i = 0; i < n; ++i) {
    Sequence& s = *sequences.emplace_back(std::make_unique<Sequence>());
    s.id = static_cast<RequestId>(i) + 1;
    s.tokens.assign(n_prompt, i);
    s.tokens.reserve(1 << 20);
    s.n_prompt = n_prompt;
    s.max_len = 1 << 20;
    scheduler.add(&s);
  }
  const auto finish_step = [](Scheduler& all, const Step& step) {
    for (const StepItem& item : step.items) {
      if (item.samples) item.sequence->tokens.push_back(item.sequence->len() % 1000);
      all.done(item);
    }
  };
  for (bool all_decode = false; !all_decode;) {
    const Step& step = scheduler.plan();
    all_decode = step.n_decodes == n;
    finish_step(scheduler, step);
  }
  for (auto _ : state) {
    const Step& step = scheduler.plan();
    benchmark::DoNotOptimize(builder.fill(step));
    benchmark::DoNotOptimize(builder.fill_rows(step));
    finish_step(scheduler, step);
    if (scheduler.pool().n_free() < n) state.SkipWithError("out of blocks");
  }
}
BENCHMARK(plan_and_fill)->Arg(1)->Arg(32)->Arg(256)->Iterations(2000);

void find_prefix(benchmark::State& state) {
  const int n = static_cast<int>(state.range(0));
  PrefixCache cache({{n / 16 + 1}}, 16);
  std::vector<int32_t> tokens(n);
  for (int i = 0; i < n; ++i) tokens[i] = i * 7919 % 50000;
  const CacheKey root = root_key("");
  CacheKey key = root;
  for (int i = 0; (i + 1) * 16 <= n; ++i)
    key = cache.insert(key, std::span<const int32_t>(tokens).subspan(static_cast<size_t>(i) * 16, 16), i);
  CacheMatch match;
  for (auto _ : state) cache.find(root, tokens, match);
  if (match.n_tokens != n / 16 * 16) state.SkipWithError("not found");
}
BENCHMARK(find_prefix)->Arg(1 << 10)->Arg(1 << 14)->Arg(1 << 17);

struct Silent : TokenSink {
  void on_token(const Sampled&) override {}
  void on_finish(const Finish&) override {}
};

void whole_step(benchmark::State& state) {
  const int n = static_cast<int>(state.range(0));
  FakeOptions options;
  options.info = {.n_vocab = 1000,
                  .n_ctx = 256,
                  .block_size = 16,
                  .pools = {{.n_blocks = n * 16}},
                  .max_batch_tokens = 1024,
                  .max_seqs = n};
  FakeRunner runner(options);
  Engine engine(runner, {});
  int64_t n_sent = 0;
  for (auto _ : state) {
    if (engine.gauges().n_running + engine.gauges().n_waiting < n) {
      state.PauseTiming();
      Request request;
      request.prompt = {static_cast<int32_t>(n_sent++ % 1000)};
      request.sink = std::make_shared<Silent>();
      engine.submit(std::move(request));
      state.ResumeTiming();
    }
    engine.step();
  }
}
BENCHMARK(whole_step)->Arg(1)->Arg(32);

}  // namespace
}  // namespace ingot

BENCHMARK_MAIN();
