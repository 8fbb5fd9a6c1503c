// The faults that make a server unhealthy or end it.
#include "server/watchdog.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "base/device_lost.h"
#include "rig.h"

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

// A step that does not end. The server becomes unhealthy, and healthy again when the step ends. If the step takes too
// long, the process ends.
TEST(Watchdog, AStepThatDoesNotEnd) {
  std::mutex mutex;
  std::condition_variable changed;
  bool held = false;
  Rig rig({.before_wait = [&] {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !held; });
  }});
  const auto hold = [&](bool value) {
    const std::lock_guard lock(mutex);
    held = value;
    changed.notify_all();
  };
  const auto n_under_way = [&] {
    const EngineGauges gauges = rig.model->gauges();
    return gauges.n_running + gauges.n_waiting;
  };
  const auto first = rig.post("/v1/completions", completion_of(2));
  ASSERT_TRUE(first->wait());
  hold(true);
  const auto second = rig.post("/v1/completions", completion_of(2));
  while (n_under_way() == 0) std::this_thread::yield();
  Watchdog patient({.soft = std::chrono::milliseconds(0)}), strict({.hard = std::chrono::milliseconds(0)});
  EXPECT_EQ(patient.check(rig.app), 0);  // the first check of the steps
  EXPECT_EQ(health(rig.app), 200);
  EXPECT_EQ(patient.check(rig.app), 0);
  EXPECT_EQ(health(rig.app), 503);
  EXPECT_EQ(strict.check(rig.app), 0);
  EXPECT_EQ(strict.check(rig.app), kExitHung);
  hold(false);
  ASSERT_TRUE(second->wait());
  EXPECT_EQ(second->status(), 200);
  while (n_under_way() > 0) std::this_thread::yield();
  EXPECT_EQ(patient.check(rig.app), 0);
  EXPECT_EQ(health(rig.app), 200);
}

}  // namespace
}  // namespace ingot
