// The faults that make a server unhealthy or end it.
#include "server/watchdog.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "base/device_lost.h"
#include "server/rig.h"

namespace ingot {
namespace {

using nlohmann::json;

json completion_of(int n) { return {{"prompt", {1, 2, 3}}, {"max_tokens", n}, {"ignore_eos", true}}; }

int health(App& app) {
  HttpRequest request{.method = "GET", .path = "/health", .headers = {{"host", "localhost"}}};
  if (const auto refusal = app.refuse(request)) return refusal->status;
  const auto recorder = std::make_shared<Recorder>();
  app.handle(std::move(request), recorder);
  return recorder->wait() ? recorder->status() : 0;
}

// Waiting clients get the error, new clients get a server error, and the process ends.
TEST(Watchdog, AnEngineWhoseThreadHasEnded) {
  std::atomic<bool> broken{false};
  Rig rig({.step_us = 1000}, 64, {}, [&](ServedModelParts& parts) {
    parts.engine.on_step = [&](const StepStats&) {
      broken.wait(false);
      throw std::runtime_error("the metrics are full");
    };
  });
  Watchdog watchdog({});
  const auto stream = rig.post("/v1/completions", completion_of(200));
  EXPECT_EQ(watchdog.check(rig.app), 0);
  EXPECT_EQ(health(rig.app), 200);
  broken = true;
  broken.notify_all();
  ASSERT_TRUE(stream->wait());
  EXPECT_EQ(stream->status(), 500);
  EXPECT_EQ(rig.model->fault(), "the metrics are full");
  EXPECT_EQ(health(rig.app), 503) << "at once";
  const auto after = rig.post("/v1/completions", completion_of(2));
  ASSERT_TRUE(after->wait());
  EXPECT_EQ(after->status(), 503);
  EXPECT_EQ(after->body().find("metrics"), std::string::npos);
  EXPECT_EQ(watchdog.check(rig.app), 0);
  EXPECT_EQ(health(rig.app), 503);
  EXPECT_EQ(watchdog.check(rig.app), kExitLostEngine);
}

// A permanent fault of the device. Waiting clients get the error, no further requests are answered, and the exit code
// shows the reason.
TEST(Watchdog, ADeviceThatIsLost) {
  std::atomic<bool> all_are_there{false};
  Rig rig({.before_forward = [&](int64_t step) {
    all_are_there.wait(false);
    if (step == 3) throw DeviceLost("an illegal memory access");
  }});
  Watchdog watchdog({});
  std::vector<std::shared_ptr<Recorder>> streams;
  for (int i = 0; i < 20; ++i)
    streams.push_back(rig.post("/v1/completions", completion_of(200)));  // more than run at once
  EXPECT_EQ(watchdog.check(rig.app), 0);
  EXPECT_EQ(health(rig.app), 200);
  all_are_there = true;
  all_are_there.notify_all();
  int n_failed = 0;
  for (const auto& stream : streams) {
    ASSERT_TRUE(stream->wait());
    n_failed += stream->status() == 500;
    EXPECT_TRUE(stream->status() == 500 || stream->status() == 503)
        << stream->status() << ": a worker may come to it when all is over";
  }
  EXPECT_GE(n_failed, 1);
  EXPECT_TRUE(rig.model->lost_device());
  const auto after = rig.post("/v1/completions", completion_of(2));
  ASSERT_TRUE(after->wait());
  EXPECT_EQ(after->status(), 503);
  EXPECT_EQ(watchdog.check(rig.app), 0);
  EXPECT_EQ(health(rig.app), 503);
  EXPECT_EQ(watchdog.check(rig.app), kExitLostDevice);
}

// A clock that a test sets.
Watchdog::Clock::time_point watchdog_time;

std::chrono::milliseconds watchdog_ms(int64_t ms) { return std::chrono::milliseconds(ms); }

// Steps that end only while `held` is false. The test says how far the step in flight is.
class HeldSteps {
 public:
  FakeOptions options() {
    return {.before_wait = [this] { wait(); }, .progress = [this] { return progress.load(); }};
  }
  void hold(bool value) {
    const std::lock_guard lock(mutex_);
    held_ = value;
    changed_.notify_all();
  }
  std::atomic<uint64_t> progress{0};

 private:
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !held_; });
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
};

bool has_begun(const ServedModel& model) {
  const EngineGauges gauges = model.gauges();
  return gauges.is_working && gauges.n_running + gauges.n_waiting > 0;
}

Watchdog a_watchdog() {
  return Watchdog({.soft = watchdog_ms(60), .hard = watchdog_ms(120), .now = [] { return watchdog_time; }});
}

// A step that does not end, as the model's first step or later. The server becomes unhealthy, and healthy again when
// the step ends. If the step takes too long without progress, the process ends.
TEST(Watchdog, AStepThatDoesNotEnd) {
  for (const bool is_first : {true, false}) {
    HeldSteps steps;
    Rig rig(steps.options());
    if (!is_first) {
      ASSERT_TRUE(rig.post("/v1/completions", completion_of(2))->wait());
    }
    steps.hold(true);
    const auto request = rig.post("/v1/completions", completion_of(2));
    while (!has_begun(*rig.model)) std::this_thread::yield();
    Watchdog watchdog = a_watchdog();
    const auto check_after = [&](int ms) {
      watchdog_time += watchdog_ms(ms);
      return watchdog.check(rig.app);
    };
    EXPECT_EQ(check_after(500), 0) << "the first check";
    EXPECT_EQ(check_after(59), 0);
    EXPECT_EQ(health(rig.app), 200);
    EXPECT_EQ(check_after(1), 0);
    EXPECT_EQ(health(rig.app), 503);
    EXPECT_EQ(check_after(59), 0);
    EXPECT_EQ(check_after(1), kExitHung);
    steps.hold(false);
    ASSERT_TRUE(request->wait());
    EXPECT_EQ(request->status(), 200);
    while (rig.model->gauges().is_working) std::this_thread::yield();
    EXPECT_EQ(check_after(1000), 0);
    EXPECT_EQ(health(rig.app), 200);
  }
}

// A step that takes ten times the limit, but proceeds.
TEST(Watchdog, ASlowStepIsNoFault) {
  HeldSteps steps;
  Rig rig(steps.options());
  steps.hold(true);
  const auto request = rig.post("/v1/completions", completion_of(2));
  while (!has_begun(*rig.model)) std::this_thread::yield();
  Watchdog watchdog = a_watchdog();
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(watchdog.check(rig.app), 0);
    EXPECT_EQ(health(rig.app), 200);
    watchdog_time += watchdog_ms(29);
    if (i % 2 == 0) ++steps.progress;  // every 58 ms: some checks see none
  }
  watchdog_time += watchdog_ms(120);
  EXPECT_EQ(watchdog.check(rig.app), kExitHung) << "and then it hangs";
  steps.hold(false);
  ASSERT_TRUE(request->wait());
}

// While the clients of all sequences do not read, the engine waits for them, for as long as they like.
TEST(Watchdog, PausedSequencesAreNoFault) {
  HeldSteps steps;
  FakeOptions slow = steps.options();
  slow.step_us = 1000;
  Rig rig(slow);
  steps.hold(true);
  json body = completion_of(200);
  body["stream"] = true;
  const auto stream = rig.post("/v1/completions", body);
  stream->full_ = true;
  steps.hold(false);
  // On a busy machine, the answer may end before the order to pause arrives.
  const auto is_quiet = [&] {
    const EngineGauges gauges = rig.model->gauges();
    return (gauges.n_paused > 0 && !gauges.is_working) || gauges.n_finished > 0;
  };
  while (!is_quiet()) std::this_thread::yield();
  Watchdog watchdog = a_watchdog();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(watchdog.check(rig.app), 0);
    EXPECT_EQ(health(rig.app), 200);
    watchdog_time += watchdog_ms(500);
  }
  stream->make_room();
  ASSERT_TRUE(stream->wait());
}

}  // namespace
}  // namespace ingot
