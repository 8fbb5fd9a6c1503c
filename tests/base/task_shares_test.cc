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
  double end = 0;                  // the end of the last task; a task takes time 1 at speed 1
  std::vector<int> taken_by;       // [tasks]: the thread, or -1
  std::vector<int64_t> first_of;   // [threads]: the first task that a thread took, or -1
};

Loop run(int64_t n_tasks, const std::vector<double>& speeds) {
  const int n_threads = static_cast<int>(speeds.size());
  TaskShares shares(n_threads);
  shares.deal(n_tasks);
  Loop loop{.taken_by = std::vector<int>(n_tasks, -1), .first_of = std::vector<int64_t>(n_threads, -1)};
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
    if (loop.first_of[thread] < 0) loop.first_of[thread] = task;
    free_at[thread] += 1 / speeds[thread];
    loop.end = std::max(loop.end, free_at[thread]);
  }
  EXPECT_EQ(std::count(loop.taken_by.begin(), loop.taken_by.end(), -1), 0) << "tasks that nobody did";
  return loop;
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
    std::vector<double> speeds(n_fast, 1.0);
    speeds.insert(speeds.end(), 8, 0.4);
    const auto n_tasks = kTasksPerThread * static_cast<int64_t>(speeds.size());
    EXPECT_LE(run(n_tasks, speeds).end, 1.15 * static_cast<double>(n_tasks) / (n_fast + 8 * 0.4))
        << n_fast << " fast cores";
  }
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
