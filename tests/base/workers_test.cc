// Workers: no job is lost despite the few wake-ups, and a long job delays no other job while a thread is idle.
#include "base/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <random>
#include <stdexcept>

#include "base/error.h"
#include "test_seed.h"

namespace ingot {
namespace {

constexpr std::chrono::seconds kPatience{120};

// Bursts with pauses between them, so that threads fall asleep and are woken at all possible times. With a lost job, a
// burst would not finish.
TEST(Workers, RunEveryJobOfEveryBurst) {
  const unsigned seed = test_seed();
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

TEST(Workers, LaterJobsRunAtTheirTimeBesideOthers) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  Workers workers(2);
  const auto post_some = [&](unsigned own_seed) {
    std::mt19937 draw(own_seed);
    std::atomic<int> left{400}, n_early{0};
    std::promise<void> done;
    for (int i = 0, n = left; i < n; ++i) {
      const auto when = Workers::Clock::now() + std::chrono::microseconds(draw() % 20'000);
      const auto job = [&, when] {
        n_early += Workers::Clock::now() < when;
        if (--left == 0) done.set_value();
      };
      draw() % 4 == 0 ? workers.post([job, when] { std::this_thread::sleep_until(when), job(); })
                      : workers.post_at(when, job);
      if (draw() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(draw() % 2000));
    }
    ASSERT_EQ(done.get_future().wait_for(kPatience), std::future_status::ready);
    EXPECT_EQ(n_early, 0);
  };
  std::thread other([&] { post_some(seed + 1); });
  post_some(seed);
  other.join();
}

// The thread that waits for a later job's time may get another job. Then an idle thread must take over the wait.
TEST(Workers, ALaterJobDoesNotWaitForALongOne) {
  Workers workers(2);
  for (int round = 0; round < 30; ++round) {
    std::promise<void> later, over;
    workers.post_at(Workers::Clock::now() + std::chrono::milliseconds(4), [&] { later.set_value(); });
    if (round % 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    bool came = false;
    workers.post([&] {
      came = later.get_future().wait_for(kPatience) == std::future_status::ready;
      over.set_value();
    });
    over.get_future().wait();
    ASSERT_TRUE(came) << "round " << round;
  }
}

TEST(Workers, WhatWaitsIsRunBeforeTheEndAndAfterItNothing) {
  std::atomic<int> n{0};
  Workers workers(2);
  for (int i = 0; i < 100; ++i) workers.post([&] { ++n; });
  workers.post([] { throw std::runtime_error("a job that fails costs itself"); });
  workers.post_at(Workers::Clock::now() + std::chrono::hours(1), [&] { ++n; });
  workers.stop();
  EXPECT_EQ(n, 101);
  workers.post([&] { ++n; });
  workers.post_at({}, [&] { ++n; });
  EXPECT_EQ(n, 101);
}

// If the system starts only some of the threads, these run the jobs, and stop() works. If the system starts no thread,
// that is an error.
TEST(Workers, AreFewerWhereTheSystemStartsNoMore) {
  const auto refused_from = [](int fails_at) {
    return [n = 0, fails_at](std::function<void()> body) mutable {
      if (n++ >= fails_at) throw std::system_error(EAGAIN, std::generic_category());
      return std::thread(std::move(body));
    };
  };
  {
    Workers workers(4, "the workers", refused_from(2));
    std::promise<int> done;
    workers.post([&] { done.set_value(7); });
    auto future = done.get_future();
    ASSERT_EQ(future.wait_for(kPatience), std::future_status::ready);
    EXPECT_EQ(future.get(), 7);
  }
  EXPECT_THROW(Workers(4, "the workers", refused_from(0)), Error);
}

// Long work takes turns with short work, which so waits for a step of each at most.
TEST(Workers, StepsTakeTurns) {
  std::string order;
  std::promise<void> open, done;
  {
    Workers workers(1);
    workers.post([&] { open.get_future().wait(); });
    for (const char name : {'a', 'b'})
      workers.post_steps([&order, &done, name, n = 0]() mutable {
        order += name;
        if (++n == 5 && name == 'b') done.set_value();
        return n < 5;
      });
    workers.post([&] { order += 'c'; });
    workers.post_steps([&order, n = 0]() mutable { return order += 'd', ++n < 2; });
    open.set_value();
    ASSERT_EQ(done.get_future().wait_for(kPatience), std::future_status::ready);
  }
  EXPECT_EQ(order, "abcdabdababab");
}

}  // namespace
}  // namespace ingot
