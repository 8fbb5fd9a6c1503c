// ThreadPool: a fork-join pool for short parallel loops (about a microsecond of overhead a loop while the threads
// spin). The caller works too. Each thread has a share of the tasks and helps the others after its own share
// (task_shares.h). So a slow or suspended thread delays only its current task. Idle threads spin for some tens of
// microseconds, then sleep. On request, the threads are bound to memory nodes (numa.h).
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/cpu_topology.h"
#include "base/system.h"
#include "base/task_shares.h"
#include "base/thread_start.h"

namespace ingot {

// The number of CPUs that this process may use, by its affinity mask and its control group's quota; at least 1. Counted
// only once, because a thread that has been bound sees only the CPUs of its own mask.
int available_cpus();

// The number of cores on which this process may run, at most available_cpus(). A second thread on a core would not
// help, because both threads compete for the same memory bandwidth or the same vector units.
int default_threads();

constexpr int kMaxThreads = 1024;  // the most that a caller may ask for

class ThreadPool {
 public:
  // n_threads includes the caller; 0 means default_threads(). If the system refuses some threads, the pool warns and
  // uses fewer. Throws Error when no other thread can start, and when n_threads is more than kMaxThreads.
  // With `nodes`, each thread, including the caller, is bound to the CPUs of its memory node; n_threads = 0 means one
  // thread for each core of these nodes. If the system refuses the binding, the pool warns.
  explicit ThreadPool(int n_threads = 0, const ThreadStarter& start = start_std_thread,
                      std::vector<MemoryNode> nodes = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // The next loops run on the first n threads, 1 <= n <= size(); the others sleep. The thread that calls parallel_for
  // calls this function, between loops. At first, all threads are in use.
  void use(int n);
  int n_used() const { return static_cast<int>(n_used_.load(std::memory_order_relaxed)); }

  const std::vector<MemoryNode>& nodes() const { return nodes_; }

  // Calls fn(task, thread) for each task in [0, n_tasks), with thread in [0, size()); returns when all calls have
  // returned. Thread i begins with the i-th of size() shares. The pool measures the speeds of its threads in loops with
  // equal_tasks, whose tasks take about the same time. One thread at a time may call parallel_for, and not from inside
  // fn. fn must not throw.
  template <class F>
  void parallel_for(int64_t n_tasks, F&& fn, bool equal_tasks = false) {
    if (n_tasks <= 1 || n_used() == 1) {
      for (int64_t task = 0; task < n_tasks; ++task) {
        n_alone_.store(n_alone_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        fn(task, 0);
      }
      return;
    }
    using Fn = std::remove_reference_t<F>;
    run(
        n_tasks, equal_tasks,
        [](void* context, int64_t task, int thread) { (*static_cast<Fn*>(context))(task, thread); },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

  // A number that changes whenever a task begins, for a watchdog. Any thread may call this function at any time.
  uint64_t progress() const {
    const uint64_t n_loops = epoch_.load(std::memory_order_relaxed);
    return (n_loops << 40) + n_alone_.load(std::memory_order_relaxed) + shares_.n_begun();
  }

  // Calls fn(thread) once on each thread, in use or not, under the rules of parallel_for.
  template <class F>
  void on_each_thread(F&& fn) {
    const int used = n_used();
    use(size());
    on_all(fn);
    use(used);
  }

 private:
  using Call = void (*)(void* context, int64_t task, int thread);

  template <class F>
  void on_all(F&& fn) {
    WaitWord n_arrived{0};
    parallel_for(size(), [&](int64_t, int thread) {
      const auto n_all = static_cast<uint32_t>(size());
      if (++n_arrived == n_all) wake_all(n_arrived);
      for (uint32_t n; (n = n_arrived) < n_all;) wait_while(n_arrived, n);  // no thread may take a second task
      fn(thread);
    });
  }

  void bind(int thread);
  void run(int64_t n_tasks, bool equal_tasks, Call call, void* context);
  void work(int thread);
  void take_tasks(int thread);
  void wait_for_job(int thread, uint32_t seen);

  // The job: run() writes it while epoch_ is even; workers read it after they have entered and then seen an odd epoch_.
  Call call_ = nullptr;
  void* context_ = nullptr;
  TaskShares shares_{0};

  std::vector<MemoryNode> nodes_;
  std::thread::id caller_;            // the thread that is bound as thread 0
  std::atomic<uint64_t> n_alone_{0};  // tasks of loops that only the caller works on; the caller counts

  alignas(64) WaitWord epoch_{0};  // odd while a job is open to workers
  alignas(64) WaitWord entered_{0};  // workers that may be reading the job
  // Not a multiple of 64 bytes from epoch_: libstdc++ counts the sleepers of such words together, and every job would
  // call the system to wake the threads that are not in use.
  alignas(64) std::atomic<bool> stop_{false};
  WaitWord n_used_{1};  // threads from this number on do not look for jobs
  std::vector<std::thread> workers_;
};

}  // namespace ingot
