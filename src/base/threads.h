// ThreadPool: a fork-join pool for short parallel loops (a microsecond a loop while its threads are warm). The caller
// takes part; tasks are handed out by a counter, so a thread that the system has taken away delays nobody else's work.
// Idle threads spin for some tens of microseconds, then sleep.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/thread_start.h"

namespace ingot {

// CPUs that this process may use: its affinity mask and its control group's quota, at least 1.
int available_cpus();

constexpr int kMostThreads = 1024;  // that a caller may ask for

class ThreadPool {
 public:
  // The caller included; 0: available_cpus(). Has fewer, and warns, where the system does not start so many. Throws
  // Error where it starts none but the caller's, and for more than kMostThreads.
  explicit ThreadPool(int n_threads = 0, const ThreadStarter& start = start_std_thread);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(task, thread) for each task in [0, n_tasks), thread in [0, size()); returns when all have run. One thread
  // at a time may call it, and not from inside fn. fn must not throw.
  template <class F>
  void parallel_for(int64_t n_tasks, F&& fn) {
    if (n_tasks <= 1 || workers_.empty()) {
      for (int64_t task = 0; task < n_tasks; ++task) fn(task, 0);
      return;
    }
    using Fn = std::remove_reference_t<F>;
    run(
        n_tasks, [](void* context, int64_t task, int thread) { (*static_cast<Fn*>(context))(task, thread); },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  using Call = void (*)(void* context, int64_t task, int thread);

  void run(int64_t n_tasks, Call call, void* context);
  void work(int thread);
  void take_tasks(int thread);
  void wait_for_job(uint32_t seen);

  // The job: written by run() while epoch_ is even and read by workers that have entered and then seen it odd.
  Call call_ = nullptr;
  void* context_ = nullptr;
  int64_t n_tasks_ = 0;

  alignas(64) std::atomic<uint32_t> epoch_{0};  // odd while a job is open to workers
  alignas(64) std::atomic<int64_t> next_task_{0};
  alignas(64) std::atomic<int32_t> entered_{0};  // workers that may be looking at the job
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace ingot
