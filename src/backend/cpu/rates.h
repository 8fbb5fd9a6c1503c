// The rate of a loop that all threads of a pool run again and again, for measurements of the machine.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "base/threads.h"

namespace ingot::cpu {

// In 10^9 a second. Other processes may use the machine at the same time: the best loop is the one with the least
// disturbance. A processor may also be faster for some milliseconds than it can be for long, which the mean shows.
struct Rate {
  double best = 0, mean = 0;
};

// work(task) returns the amount of work that it has done. Runs for `least` at least, and three loops at least.
template <class Work>
Rate rate_of(ThreadPool& pool, int64_t n_tasks, std::chrono::milliseconds least, Work&& work) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> done(static_cast<size_t>(n_tasks));
  double best = 0, all_work = 0, all_seconds = 0;
  const auto deadline = Clock::now() + least;
  for (int i = 0; i < 3 || Clock::now() < deadline; ++i) {
    const auto start = Clock::now();
    pool.parallel_for(n_tasks, [&](int64_t task, int) { done[static_cast<size_t>(task)] = work(task); });
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    double total = 0;
    for (const double d : done) total += d;
    best = std::max(best, total / seconds * 1e-9);
    all_work += total;
    all_seconds += seconds;
  }
  return {best, all_work / all_seconds * 1e-9};
}

}  // namespace ingot::cpu
