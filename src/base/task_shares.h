// Divides the tasks of a parallel loop into equal shares, one for each thread. A thread takes the tasks of its own
// share in order, then remaining tasks of other shares. In loops with the same number of tasks, a thread mostly works
// on the same data, which is good for caches and NUMA. A slow thread delays the others by one task at most.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

namespace ingot {

// With 16 equal tasks a thread, a thread at half speed delays the loop by at most an eighth of a share.
constexpr int64_t kTasksPerThread = 16;

class TaskShares {
 public:
  explicit TaskShares(int n_threads) : n_(n_threads), shares_(std::make_unique<Share[]>(n_threads)) {}

  // Must not be called while a thread takes tasks.
  void deal(int64_t n_tasks) {
    for (int i = 0; i < n_; ++i) {
      shares_[i].next.store(i * n_tasks / n_, std::memory_order_relaxed);
      shares_[i].end = (i + 1) * n_tasks / n_;
    }
  }

  // The next task of this thread, or -1. `n_empty` counts the shares that the thread found empty: 0 before its first
  // task of a loop.
  int64_t take(int thread, int& n_empty) {
    for (; n_empty < n_; ++n_empty) {
      Share& share = shares_[(thread + n_empty) % n_];
      if (share.next.load(std::memory_order_relaxed) >= share.end) continue;
      const int64_t task = share.next.fetch_add(1, std::memory_order_relaxed);
      if (task < share.end) return task;
    }
    return -1;
  }

 private:
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  int n_;
  std::unique_ptr<Share[]> shares_;
};

}  // namespace ingot
