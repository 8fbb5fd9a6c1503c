// Simulates in virtual time how threads of different speeds take tasks.
#include "base/task_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "test_seed.h"

namespace ingot {
namespace {

struct Loop {
  double end = 0;             // the end of the last task; a task takes time 1 at speed 1
  std::vector<int> taken_by;  // [tasks]: the thread, or -1
};

// `times` [tasks]: of each task at speed 1, where not 1.
Loop run(TaskShares& shares, int64_t n_tasks, const std::vector<double>& speeds,
         const std::vector<double>& times = {}) {
  const int n_threads = static_cast<int>(speeds.size());
  shares.deal(n_tasks, times.empty());
  Loop loop{.taken_by = std::vector<int>(n_tasks, -1)};
  std::vector<double> free_at(n_threads, 0);
  std::vector<int> n_empty(n_threads, 0);
  std::vector<bool> done(n_threads, false);
  while (std::find(done.begin(), done.end(), false) != done.end()) {
    int thread = -1;
    for (int i = 0; i < n_threads; ++i)
      if (!done[i] && (thread < 0 || free_at[i] < free_at[thread])) thread = i;
    const int64_t task = shares.take(thread, n_empty[thread]);
    done[thread] = task < 0;
    if (task < 0) continue;
    EXPECT_EQ(loop.taken_by[task], -1) << "task " << task << " was dealt twice";
    loop.taken_by[task] = thread;
    free_at[thread] += (times.empty() ? 1 : times[task]) / speeds[thread];
    loop.end = std::max(loop.end, free_at[thread]);
  }
  EXPECT_EQ(std::count(loop.taken_by.begin(), loop.taken_by.end(), -1), 0) << "tasks that nobody did";
  return loop;
}

Loop run(int64_t n_tasks, const std::vector<double>& speeds) {
  TaskShares shares(static_cast<int>(speeds.size()));
  return run(shares, n_tasks, speeds);
}

std::vector<double> fast_and_slow(int n_fast, int n_slow) {
  std::vector<double> speeds(n_fast, 1.0);
  speeds.insert(speeds.end(), n_slow, 0.4);
  return speeds;
}

// The tasks that other threads than the first loop's took.
int64_t moved(const Loop& first, const Loop& loop) {
  int64_t n = 0;
  for (size_t task = 0; task < first.taken_by.size(); ++task) n += first.taken_by[task] != loop.taken_by[task];
  return n;
}

// How often the next task belongs to an earlier thread. Without stolen tasks, never.
int64_t n_stolen(const Loop& loop) {
  int64_t n = 0;
  for (size_t task = 1; task < loop.taken_by.size(); ++task) n += loop.taken_by[task] < loop.taken_by[task - 1];
  return n;
}

TEST(TaskShares, AThreadOfHalfTheSpeedCostsFifteenPerCentAtMost) {
  for (const int n_threads : {2, 3, 4, 8, 16, 64}) {
    const int64_t n_tasks = kTasksPerThread * n_threads;
    for (int slow = 0; slow < n_threads; ++slow) {
      std::vector<double> speeds(n_threads, 1.0);
      speeds[slow] = 0.5;
      const double ideal = static_cast<double>(n_tasks) / (n_threads - 0.5);
      EXPECT_LE(run(n_tasks, speeds).end, 1.15 * ideal) << n_threads << " threads, thread " << slow << " slow";
    }
  }
}

// Some cores of a processor are slower than the others.
TEST(TaskShares, CoresOfTwoKindsAreBothBusy) {
  for (const int n_fast : {2, 4, 6, 8}) {
    const std::vector<double> speeds = fast_and_slow(n_fast, 8);
    const auto n_tasks = kTasksPerThread * static_cast<int64_t>(speeds.size());
    EXPECT_LE(run(n_tasks, speeds).end, 1.15 * static_cast<double>(n_tasks) / (n_fast + 8 * 0.4))
        << n_fast << " fast cores";
  }
}

// After some loops, each thread's share is its speed, so threads no longer take tasks of others in turn.
TEST(TaskShares, SharesBecomeTheSpeedsOfTheThreads) {
  for (const int n_fast : {1, 2, 6, 8}) {
    const std::vector<double> speeds = fast_and_slow(n_fast, 8);
    const double sum = n_fast + 8 * 0.4;
    const auto n_threads = static_cast<int64_t>(speeds.size()), n_tasks = 10 * kTasksPerThread * n_threads;
    TaskShares shares(static_cast<int>(n_threads));
    const Loop equal = run(shares, n_tasks, speeds);
    for (int i = 0; i < 64; ++i) run(shares, n_tasks, speeds);
    const Loop loop = run(shares, n_tasks, speeds);
    EXPECT_GT(n_stolen(equal), 4 * n_threads);
    EXPECT_LE(n_stolen(loop), n_threads) << n_fast << " fast cores";
    EXPECT_LE(loop.end, static_cast<double>(n_tasks) / sum + 1 / 0.4);
    std::vector<int64_t> taken(n_threads, 0);
    for (const int thread : loop.taken_by) ++taken[thread];
    for (int64_t i = 0; i < n_threads; ++i)
      EXPECT_NEAR(static_cast<double>(taken[i]), static_cast<double>(n_tasks) * speeds[i] / sum, 2) << "thread " << i;
  }
}

TEST(TaskShares, AThreadThatIsFastAgainGetsItsShareBack) {
  const int64_t n_tasks = 4 * kTasksPerThread;
  const std::vector<double> usual(4, 1.0), slowed = {1, 1, 0.2, 1};
  TaskShares shares(4);
  const Loop before = run(shares, n_tasks, usual);
  for (int i = 0; i < 200; ++i) run(shares, n_tasks, slowed);
  EXPECT_GT(moved(before, run(shares, n_tasks, usual)), 0);
  for (int i = 0; i < 400; ++i) run(shares, n_tasks, usual);
  EXPECT_LE(moved(before, run(shares, n_tasks, usual)), n_tasks / 8);
}

// Shares that change would take weights from the cache of a core. Tasks vary a little, and other loops' tasks much.
TEST(TaskShares, SharesOfEqualThreadsDoNotChange) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::vector<double> equal(8, 1.0);
  const int64_t n_tasks = 8 * kTasksPerThread;
  TaskShares shares(8);
  std::vector<double> growing(n_tasks);
  for (int64_t i = 0; i < n_tasks; ++i) growing[i] = 1 + static_cast<double>(i);
  for (int i = 0; i < 1000; ++i) {
    std::vector<double> speeds(8);
    for (double& speed : speeds) speed = 0.8 + static_cast<double>(random() % 400) / 1000;
    run(shares, n_tasks, speeds);
    run(shares, n_tasks, equal, growing);
  }
  const Loop loop = run(shares, n_tasks, equal);
  for (int64_t task = 0; task < n_tasks; ++task) EXPECT_EQ(loop.taken_by[task], task / kTasksPerThread) << task;
}

// Equal shares keep weights near the thread that packed them.
TEST(TaskShares, EqualThreadsKeepTheirShares) {
  for (const int n_threads : {1, 2, 3, 8}) {
    const Loop loop = run(16 * n_threads, std::vector<double>(n_threads, 1.0));
    for (int64_t task = 0; task < 16 * n_threads; ++task) EXPECT_EQ(loop.taken_by[task], task / 16) << task;
  }
}

TEST(TaskShares, FewTasksAreAllDone) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> speeds(1 + random() % 9);
    for (double& speed : speeds) speed = 0.1 + static_cast<double>(random() % 100) / 50;
    run(random() % 20, speeds);
  }
}

}  // namespace
}  // namespace ingot
