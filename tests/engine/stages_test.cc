// Runners with several stages: as many steps are in flight, each with its share of the sequences. The fake runner
// detects a sequence whose token is not known yet.
#include <gtest/gtest.h>

#include "collector.h"
#include "engine/engine.h"

namespace ingot {
namespace {

FakeOptions stage_options(int n_stages) {
  FakeOptions options;
  options.info.overlaps = true;
  options.info.n_stages = n_stages;
  return options;
}

// Forwards less waits: the steps in flight when a forward returns.
class CountingRunner final : public Runner {
 public:
  explicit CountingRunner(const FakeOptions& options) : runner_(options) {}
  const RunnerInfo& info() const override { return runner_.info(); }
  void forward(const Batch& batch) override {
    runner_.forward(batch);
    n_in_flight.push_back(++n_);
    n_seqs.push_back(batch.n_seqs());
  }
  void sample(std::span<const SampleRow> rows) override { runner_.sample(rows); }
  std::vector<Sampled> wait() override {
    --n_;
    return runner_.wait();
  }
  std::vector<int> n_in_flight, n_seqs;  // after each forward

 private:
  FakeRunner runner_;
  int n_ = 0;
};

std::vector<std::shared_ptr<Collector>> numbered_answers(Engine& engine, int n_requests, int n_prompt, int n_output) {
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < n_requests; ++i) {
    sinks.push_back(std::make_shared<Collector>());
    engine.submit({.prompt = std::vector<int32_t>(static_cast<size_t>(n_prompt), i + 1),
                   .max_tokens = n_output,
                   .sink = sinks.back()});
  }
  while (engine.step()) {}
  return sinks;
}

class Stages : public testing::TestWithParam<int> {};

TEST_P(Stages, EachStepHasItsShareOfTheSequences) {
  const int n_stages = GetParam(), n_requests = 12;
  CountingRunner runner(stage_options(n_stages));
  Engine engine(runner);
  for (const auto& sink : numbered_answers(engine, n_requests, 1, 40)) EXPECT_EQ(sink->tokens.size(), 40u);
  // After the prompts, and before the first numbered_answers end.
  ASSERT_GT(runner.n_seqs.size(), 100u * n_stages / 4);
  for (size_t i = 3u * n_stages; i < 20u * n_stages; ++i) {
    EXPECT_EQ(runner.n_seqs[i], n_requests / n_stages) << i;
    EXPECT_EQ(runner.n_in_flight[i], n_stages) << i;
  }
}

TEST_P(Stages, OneSequenceRunsAlone) {
  CountingRunner runner(stage_options(GetParam()));
  Engine engine(runner);
  EXPECT_EQ(numbered_answers(engine, 1, 5, 10)[0]->tokens.size(), 10u);
  EXPECT_EQ(runner.n_in_flight, std::vector<int>(10, 1));
}

// The chunks of one prompt follow each other through the stages.
TEST_P(Stages, ChunksOfOnePromptAreInFlightTogether) {
  CountingRunner runner(stage_options(GetParam()));
  Engine engine(runner, {.chunk = 10});
  EXPECT_EQ(numbered_answers(engine, 1, 100, 1)[0]->tokens.size(), 1u);
  ASSERT_EQ(runner.n_in_flight.size(), 10u);
  for (size_t i = static_cast<size_t>(GetParam()); i < 10; ++i) EXPECT_EQ(runner.n_in_flight[i], GetParam()) << i;
}

TEST_P(Stages, WithoutOverlapOneStepIsInFlight) {
  CountingRunner runner(stage_options(GetParam()));
  Engine engine(runner, {.overlap = false});
  for (const auto& sink : numbered_answers(engine, 6, 3, 10)) EXPECT_EQ(sink->tokens.size(), 10u);
  for (const int n : runner.n_in_flight) EXPECT_EQ(n, 1);
  EXPECT_EQ(runner.n_seqs.back(), 6);
}

INSTANTIATE_TEST_SUITE_P(, Stages, testing::Values(2, 3, 4), [](const auto& i) { return std::to_string(i.param); });

}  // namespace
}  // namespace ingot
