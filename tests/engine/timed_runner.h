// TimedRunner: the fake model on a device whose step times and clock are set by the test.
#pragma once
#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "collector.h"
#include "engine/engine.h"

namespace ingot {

// Microseconds of a step.
struct StepCost {
  double device = 0;
  double host = 10;  // before the device begins
  double late = 0;   // of the host, while the device works
};
using StepCosts = std::function<StepCost(const Batch&)>;

class TimedRunner final : public Runner {
 public:
  TimedRunner(const FakeOptions& options, StepCosts device) : runner_(options), device_(std::move(device)) {
    fake_time = {};
  }
  const RunnerInfo& info() const override { return runner_.info(); }
  void forward(const Batch& batch) override {
    runner_.forward(batch);
    const StepCost cost = device_(batch);
    fake_time += time(cost.host);
    done_at_ = std::max(done_at_, fake_time) + time(cost.device);
    fake_time += time(cost.late);
    if (!info().overlaps) fake_time = std::max(fake_time, done_at_);
  }
  void sample(std::span<const SampleRow> rows) override {
    runner_.sample(rows);
    drawn_at_ = done_at_;
  }
  std::vector<Sampled> wait() override {
    fake_time = std::max(fake_time, drawn_at_);
    return runner_.wait();
  }
  void follow(std::span<const int32_t> next_tokens) override { runner_.follow(next_tokens); }
  std::vector<std::vector<HeadGuess>> draft(std::span<const DraftRow> rows, const HeadGoesOn& goes_on) override {
    return runner_.draft(rows, goes_on);
  }

 private:
  static Clock::duration time(double us) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::micro>(us));
  }
  FakeRunner runner_;
  const StepCosts device_;
  Clock::time_point done_at_{}, drawn_at_{};
};

struct Outcome {
  double us = 0;
  EngineGauges gauges;
};
using MakeProposer = std::function<std::shared_ptr<Proposer>(const Request& request, const Expected& expected)>;

// Answers n_requests with n_output tokens each, and checks the tokens. make: null for no drafts.
inline Outcome run(const FakeOptions& options, const StepCosts& device, int n_requests, int n_output,
                   const MakeProposer& make) {
  TimedRunner runner(options, device);
  Engine engine(runner, {.now = [] { return fake_time; }});
  std::vector<std::shared_ptr<Collector>> sinks;
  std::vector<Expected> expected;
  for (int i = 0; i < n_requests; ++i) {
    Request request{.prompt = {i, 2, 3}, .max_tokens = n_output};
    expected.push_back(expected_output(request, runner.info()));
    if (make) request.proposer = make(request, expected.back());
    sinks.push_back(std::make_shared<Collector>());
    request.sink = sinks.back();
    engine.submit(std::move(request));
  }
  while (engine.step()) {}
  for (int i = 0; i < n_requests; ++i) EXPECT_EQ(sinks[i]->tokens, expected[i].tokens);
  return {std::chrono::duration<double, std::micro>(fake_time - Clock::time_point{}).count(), engine.gauges()};
}

// n_fixed: drafts in each step; 0: the engine decides.
inline MakeProposer oracle(double p, uint64_t seed = 0, int n_fixed = 0) {
  return [=](const Request& request, const Expected& expected) {
    return std::make_shared<OracleProposer>(expected.tokens, request.prompt.size(), 1000, p,
                                            1000 * seed + static_cast<uint64_t>(request.prompt[0]), n_fixed);
  };
}

}  // namespace ingot
