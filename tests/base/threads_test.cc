#include "base/threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <climits>
#include <numeric>
#include <random>

#include "base/error.h"
#include "captured_log.h"
#include "test_seed.h"

namespace ingot {
namespace {

TEST(ThreadPool, RunsEachTaskOnceWithAThreadOfItsOwn) {
  for (int n_threads : {1, 2, 3, 8}) {
    ThreadPool pool(n_threads);
    EXPECT_EQ(pool.size(), n_threads);
    for (int n_tasks : {0, 1, 2, 7, 1000}) {
      std::vector<int> runs(n_tasks);
      std::vector<std::atomic<int>> inside(n_threads);
      std::atomic<int> bad{0};
      pool.parallel_for(n_tasks, [&](int64_t task, int thread) {
        if (thread < 0 || thread >= n_threads || inside[thread].fetch_add(1) != 0) ++bad;
        ++runs[task];
        inside[thread].fetch_sub(1);
      });
      EXPECT_EQ(bad, 0);
      EXPECT_EQ(runs, std::vector<int>(n_tasks, 1)) << n_threads << " threads, " << n_tasks << " tasks";
    }
  }
}

// Runs jobs of varying size and context one after another, with pauses long enough for workers to fall asleep. Only
// plain memory connects the tasks of one job with those of the next. A lost wake-up hangs, a stale job gives a wrong
// sum, and TSan reports a race.
TEST(ThreadPool, ThousandsOfJobsInARow) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  ThreadPool pool(4);
  std::vector<int64_t> values(257, 1);
  for (int job = 0; job < 20000; ++job) {
    const int n = 1 + static_cast<int>(random() % values.size());
    const int64_t step = static_cast<int64_t>(random() % 100);
    const int64_t before = std::accumulate(values.begin(), values.end(), int64_t{0});
    pool.parallel_for(n, [&values, step](int64_t task, int) { values[task] += step; });
    ASSERT_EQ(std::accumulate(values.begin(), values.end(), int64_t{0}), before + n * step);
    if (random() % 512 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 400));
  }
}

// A worker that is late for the last job finds the job and the pool closed. The worker must not wait for another job.
TEST(ThreadPool, EndsRightAfterAJob) {
  std::atomic<int64_t> sum{0};
  for (int round = 0; round < 5000; ++round) {
    ThreadPool pool(4);
    for (int job = 0; job < round % 3; ++job) pool.parallel_for(2, [&](int64_t task, int) { sum += task; });
  }
  EXPECT_EQ(sum, 4999);
}

// Each of two tasks waits for the other.
TEST(ThreadPool, TasksOverlap) {
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  pool.parallel_for(2, [&](int64_t, int) {
    ++arrived;
    while (arrived != 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 2);
}

// A starter that refuses thread number `fails_at`, counted from 0, and all later threads.
ThreadStarter refused_from(int fails_at) {
  return [n = 0, fails_at](std::function<void()> body) mutable {
    if (n++ >= fails_at) throw std::system_error(EAGAIN, std::generic_category());
    return std::thread(std::move(body));
  };
}

// The pool leaves one of the available threads unused, because the engine needs a thread.
TEST(ThreadPool, HasFewerThreadsWhereTheSystemStartsNoMore) {
  for (int n_started : {1, 2, 3, 6}) {
    const CapturedLog log;
    ThreadPool pool(8, refused_from(n_started));
    const std::string& said = log.text();
    const int n_workers = std::max(1, n_started - 1);
    EXPECT_EQ(pool.size(), n_workers + 1);
    EXPECT_NE(said.find(fmt::format("the thread pool: thread {} of 7 could not be started", n_started + 1)), said.npos)
        << said;
    EXPECT_NE(said.find(thread_limits().substr(0, 15)), said.npos) << said;  // "RLIMIT_NPROC is"
    EXPECT_NE(said.find(fmt::format("continuing with {} threads", n_workers)), said.npos) << said;
    std::vector<int> runs(100);
    pool.parallel_for(100, [&](int64_t task, int) { ++runs[task]; });
    EXPECT_EQ(runs, std::vector<int>(100, 1));
  }
}

TEST(ThreadPool, IsAnErrorWhereNotOneWorkerStarts) {
  try {
    ThreadPool pool(8, refused_from(0));
    FAIL() << "a pool without workers";
  } catch (const Error& error) {
    const std::string said = error.what();
    EXPECT_NE(said.find("none of 7 threads could be started"), said.npos) << said;
    EXPECT_NE(said.find(std::generic_category().message(EAGAIN)), said.npos) << said;
    EXPECT_NE(said.find("RLIMIT_NPROC"), said.npos) << said;
    EXPECT_NE(said.find("pids.max"), said.npos) << said;
  }
  EXPECT_EQ(ThreadPool(1, refused_from(0)).size(), 1) << "which needs no worker";
}

TEST(StartThread, AFailureNamesTheThreadAndTheLimits) {
  try {
    start_thread("the poet", [] { return refused_from(0)([] {}); });
    FAIL() << "it started";
  } catch (const Error& error) {
    EXPECT_TRUE(std::string_view(error.what()).starts_with("the poet could not be started: ")) << error.what();
    EXPECT_NE(std::string_view(error.what()).find("RLIMIT_NPROC"), std::string_view::npos) << error.what();
  }
}

TEST(ThreadPool, HasABound) {
  for (const int n : {-1, kMaxThreads + 1, INT_MAX, INT_MIN}) {
    int n_started = 0;
    const auto counted = [&](std::function<void()> body) {
      ++n_started;
      return std::thread(std::move(body));
    };
    EXPECT_THROW(ThreadPool(n, counted), Error) << n;
    EXPECT_EQ(n_started, 0) << n;
  }
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(ThreadPool, IdleThreadsSleep) {
  ThreadPool pool(8);
  pool.parallel_for(64, [](int64_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(cpu_seconds() - before, 0.05);
}

TEST(ThreadPool, DefaultIsTheCpusOfThisProcess) {
  EXPECT_GE(available_cpus(), 1);
  EXPECT_LE(available_cpus(), static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  EXPECT_EQ(ThreadPool().size(), default_threads());
  EXPECT_GE(default_threads(), 1);
  EXPECT_LE(default_threads(), available_cpus());
}

// Each task that begins changes the number, in loops that the caller runs alone too.
TEST(ThreadPool, ProgressChangesWithEachTask) {
  for (const int n_threads : {1, 3}) {
    ThreadPool pool(n_threads);
    uint64_t last = pool.progress();
    for (const int64_t n_tasks : {1, 2, 7, 100}) {
      std::mutex mutex;
      std::set<uint64_t> seen;
      pool.parallel_for(n_tasks, [&](int64_t, int) {
        const std::lock_guard lock(mutex);
        seen.insert(pool.progress());
      });
      // A thread takes its next task before or after another thread looks.
      EXPECT_GE(std::ssize(seen), (n_tasks + n_threads - 1) / n_threads) << n_threads << " threads, " << n_tasks << " tasks";
      EXPECT_EQ(seen.count(last), 0u);
      EXPECT_NE(pool.progress(), last);
      last = pool.progress();
    }
  }
}

// Loops with changing numbers of threads in use, some of them asleep. A worker that is late may still take a task of
// the first loop after a change, so only later loops tell.
TEST(ThreadPool, UsesAsManyThreadsAsAsked) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  ThreadPool pool(6);
  EXPECT_EQ(pool.n_used(), 6);
  for (int round = 0; round < 300; ++round) {
    const int n = 1 + static_cast<int>(random() % 6);
    pool.use(n);
    EXPECT_EQ(pool.n_used(), n);
    EXPECT_EQ(pool.size(), 6);
    for (int loop = 0; loop < 4; ++loop) {
      std::vector<int> runs(1 + random() % 200);
      pool.parallel_for(std::ssize(runs), [&](int64_t task, int) { ++runs[task]; }, random() % 2 == 0);
      ASSERT_EQ(runs, std::vector<int>(runs.size(), 1)) << n << " threads in use";
    }
    if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 400));
  }
}

TEST(ThreadPool, ThreadsNotInUseSleepAndComeBack) {
  ThreadPool pool(4);
  pool.use(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(100))
    pool.parallel_for(8, [](int64_t, int thread) { EXPECT_EQ(thread, 0); });
  EXPECT_LT(cpu_seconds() - before, 0.15) << "of the caller alone";
  std::vector<std::atomic<int>> calls(4);
  pool.on_each_thread([&](int thread) { ++calls[thread]; });
  for (int thread = 0; thread < 4; ++thread) EXPECT_EQ(calls[thread], 1);
  EXPECT_EQ(pool.n_used(), 1);
  pool.use(2);
  for (int loop = 0; loop < 1000; ++loop)
    pool.parallel_for(64, [](int64_t, int) {});
  EXPECT_EQ(pool.n_used(), 2);
}

}  // namespace
}  // namespace ingot
