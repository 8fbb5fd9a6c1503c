// A lost device ends the engine. Each waiting consumer gets the error once, and the engine accepts no further requests.
// A step that only fails ends just its own requests (engine_test.cc).
#include <gtest/gtest.h>

#include "base/device_lost.h"
#include "base/error.h"
#include "collector.h"
#include "engine/engine.h"

namespace ingot {
namespace {

constexpr const char* kWhy = "an illegal memory access";

struct LossCase {
  bool overlaps;
  bool in_wait;  // wait() reports the loss; false: forward() does
};

FakeOptions losing(const LossCase& c, int64_t at_step) {
  FakeOptions options;
  options.info = {.n_vocab = 40,
                  .n_ctx = 48,
                  .block_size = 4,
                  .pools = {{.n_blocks = 30}},
                  .max_batch_tokens = 16,
                  .max_seqs = 6,
                  .overlaps = c.overlaps};
  const auto n_waits = std::make_shared<int64_t>(0);
  if (c.in_wait) {
    options.before_wait = [=] {
      if ((*n_waits)++ == at_step) throw DeviceLost(kWhy);
    };
  } else {
    options.before_forward = [=](int64_t step) {
      if (step == at_step) throw DeviceLost(kWhy);
    };
  }
  return options;
}

class LostDevice : public testing::TestWithParam<LossCase> {
 protected:
  std::vector<std::shared_ptr<Collector>> submit(Engine& engine, int n) {
    std::vector<std::shared_ptr<Collector>> sinks;
    for (int i = 0; i < n; ++i) {
      sinks.push_back(std::make_shared<Collector>());
      engine.submit({.prompt = {1, 2, i}, .max_tokens = 30, .ignore_eos = true, .sink = sinks.back()});
    }
    return sinks;
  }
  void expect_lost(const Engine& engine, const std::vector<std::shared_ptr<Collector>>& sinks) {
    EXPECT_TRUE(engine.lost_device());
    EXPECT_EQ(engine.fault(), kWhy);
    for (const auto& sink : sinks) {
      ASSERT_TRUE(sink->finish);
      EXPECT_EQ(sink->finish->reason, FinishReason::kError);
      EXPECT_EQ(sink->finish->error, kWhy);
    }
  }
};

TEST_P(LostDevice, EndsTheEngine) {
  for (const int64_t at_step : {0, 1, 7}) {
    FakeRunner runner(losing(GetParam(), at_step));
    Engine engine(runner, {.chunk = 8});
    const auto sinks = submit(engine, 20);  // six of the requests run at once
    engine.start();
    while (engine.fault().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    engine.stop();
    expect_lost(engine, sinks);
    EXPECT_THROW(submit(engine, 1), Error);
  }
}

TEST_P(LostDevice, EndsTheCallersSteps) {
  for (const int64_t at_step : {0, 1, 7}) {
    FakeRunner runner(losing(GetParam(), at_step));
    Engine engine(runner, {.chunk = 8});
    const auto sinks = submit(engine, 20);
    EXPECT_THROW(
        while (engine.step()) {
        },
        DeviceLost);
    expect_lost(engine, sinks);
  }
}

// With a step in flight that only the destructor waits for.
TEST(LostDevices, WhileTheEngineIsDestroyed) {
  FakeRunner runner(losing({.overlaps = true, .in_wait = true}, 0));
  const auto sink = std::make_shared<Collector>();
  {
    Engine engine(runner, {});
    engine.submit({.prompt = {1, 2}, .max_tokens = 5, .sink = sink});
    EXPECT_TRUE(engine.step());
  }
  ASSERT_TRUE(sink->finish);
  EXPECT_EQ(sink->finish->reason, FinishReason::kError);
}

INSTANTIATE_TEST_SUITE_P(, LostDevice,
                         testing::Values(LossCase{false, false}, LossCase{false, true}, LossCase{true, false},
                                         LossCase{true, true}),
                         [](const auto& i) {
                           return std::string(i.param.overlaps ? "Overlapped" : "InTurn") +
                                  (i.param.in_wait ? "InWait" : "InForward");
                         });

}  // namespace
}  // namespace ingot
