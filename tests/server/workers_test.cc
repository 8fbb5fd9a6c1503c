// Workers: no job is forgotten, however few wakes there are, and a long one holds up no other while a thread is free.
#include "server/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <random>
#include <stdexcept>

namespace ingot {
namespace {

constexpr std::chrono::seconds kPatience{120};

// Bursts with pauses between them, so that threads fall asleep and are woken at every moment; a forgotten job would leave its burst unfinished.
TEST(Workers, RunEveryJobOfEveryBurst) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  Workers workers(3);
  const auto post_bursts = [&](unsigned own_seed) {
    std::mt19937 draw(own_seed);
    for (int burst = 0; burst < 300; ++burst) {
      const int n = 1 + static_cast<int>(draw() % 20);
      auto left = std::make_shared<std::atomic<int>>(n);
      auto done = std::make_shared<std::promise<void>>();
      for (int i = 0; i < n; ++i) {
        workers.post([left, done] {
          if (--*left == 0) done->set_value();
        });
      }
      ASSERT_EQ(done->get_future().wait_for(kPatience), std::future_status::ready) << "burst " << burst;
      if (draw() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(draw() % 200));
    }
  };
  std::thread other([&] { post_bursts(seed + 1); });
  post_bursts(seed);
  other.join();
}

TEST(Workers, ALongJobHoldsUpNoOther) {
  Workers workers(2);
  for (int round = 0; round < 50; ++round) {
    std::promise<void> release;
    std::shared_future<void> released = release.get_future();
    auto left = std::make_shared<std::atomic<int>>(5);
    auto done = std::make_shared<std::promise<void>>();
    workers.post([released] { released.wait(); });
    for (int i = 0; i < 5; ++i) {
      workers.post([left, done] {
        if (--*left == 0) done->set_value();
      });
    }
    EXPECT_EQ(done->get_future().wait_for(kPatience), std::future_status::ready) << "round " << round;
    release.set_value();
  }
}

TEST(Workers, WhatWaitsIsRunBeforeTheEndAndAfterItNothing) {
  std::atomic<int> n{0};
  Workers workers(2);
  for (int i = 0; i < 100; ++i) workers.post([&] { ++n; });
  workers.post([] { throw std::runtime_error("a job that fails costs itself"); });
  workers.stop();
  EXPECT_EQ(n, 100);
  workers.post([&] { ++n; });
  EXPECT_EQ(n, 100);
}

}  // namespace
}  // namespace ingot
