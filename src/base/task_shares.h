// Divides the tasks of a parallel loop into shares, one for each thread. A thread takes the tasks of its own share in
// order, then remaining tasks of other shares. In loops with the same number of tasks, a thread mostly works on the
// same data, which is good for caches and NUMA. A slow thread delays the others by one task at most.
//
// Shares are equal at first. All threads end a loop at about the same time. So in loops with equal tasks, the number of
// tasks that a thread took is its speed. When these numbers differ clearly from the shares, as on processors with two
// kinds of cores, the shares become these numbers.
#pragma once
#include <atomic>
#include <cmath>
#include <cstdint>
#include <vector>

namespace ingot {

// With 16 equal tasks a thread, a thread at half speed delays the loop by at most an eighth of a share.
constexpr int64_t kTasksPerThread = 16;

class TaskShares {
 public:
  // With by_speed = false, the shares stay equal.
  explicit TaskShares(int n_threads, bool by_speed = true)
      : n_(n_threads), by_speed_(by_speed && n_threads > 1), shares_(static_cast<size_t>(n_threads)) {
    for (Share& share : shares_) share.weight = 1.0 / n_;
  }

  // Only the first n threads take tasks from the next loop on; their shares are equal again. 1 <= n <= n_threads. Must
  // not be called while a thread takes tasks.
  void use(int n) {
    n_ = n;
    n_measured_ = 0;
    equal_tasks_ = false;  // the last loop's tasks no longer count
    for (Share& share : shares_) share.weight = 1.0 / n_, share.n_taken = share.n_measured = 0;
  }

  // equal_tasks: all tasks take about the same time. Must not be called while a thread takes tasks.
  void deal(int64_t n_tasks, bool equal_tasks) {
    if (by_speed_) measure();
    n_tasks_ = n_tasks;
    equal_tasks_ = equal_tasks;
    double sum = 0;
    int64_t begin = 0;
    for (int i = 0; i < n_; ++i) {
      sum += shares_[i].weight;
      const int64_t end = i + 1 == n_ ? n_tasks : std::llround(sum * static_cast<double>(n_tasks));
      shares_[i].next.store(begin, std::memory_order_relaxed);
      shares_[i].end = begin = end;
    }
  }

  // A number that changes with each task that a thread takes. Any thread may call this function at any time.
  uint64_t n_begun() const {
    uint64_t n = 0;
    for (const Share& share : shares_) n += static_cast<uint64_t>(share.next.load(std::memory_order_relaxed));
    return n;
  }

  // The next task of this thread, or -1. `n_empty` counts the shares that the thread found empty: 0 before its first
  // task of a loop.
  int64_t take(int thread, int& n_empty) {
    for (; n_empty < n_; ++n_empty) {
      Share& share = shares_[(thread + n_empty) % n_];
      if (share.next.load(std::memory_order_relaxed) >= share.end) continue;
      const int64_t task = share.next.fetch_add(1, std::memory_order_relaxed);
      if (task >= share.end) continue;
      ++shares_[thread].n_taken;
      return task;
    }
    return -1;
  }

 private:
  static constexpr int64_t kTasksMeasured = 1024;  // a thread, before the shares may change: 64 loops and more
  static constexpr double kClearly = 0.125;        // shares that are wrong by less stay as they are

  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
    int64_t n_taken = 0;     // in this loop, by the thread of this share, from any share
    int64_t n_measured = 0;  // in earlier loops
    double weight = 0;       // part of all tasks
  };

  // Counts the tasks of the last loop, unless they were too few or too different to tell speeds apart.
  void measure() {
    const bool counts = equal_tasks_ && n_tasks_ >= n_ * kTasksPerThread / 2;
    for (int i = 0; i < n_; ++i) {
      if (counts) shares_[i].n_measured += shares_[i].n_taken;
      shares_[i].n_taken = 0;
    }
    if (counts) n_measured_ += n_tasks_;
    if (n_measured_ >= n_ * kTasksMeasured) change_shares();
  }

  void change_shares() {
    bool differ = false;
    for (int i = 0; i < n_; ++i) differ |= std::abs(speed(i) - shares_[i].weight) > kClearly * shares_[i].weight;
    for (int i = 0; i < n_; ++i) {
      if (differ) shares_[i].weight = speed(i);
      shares_[i].n_measured = 0;
    }
    n_measured_ = 0;
  }

  // The speed of a thread, as part of the speed of all. No thread's is 0, so that each can gain tasks again.
  double speed(int i) const {
    return static_cast<double>(shares_[i].n_measured + 1) / static_cast<double>(n_measured_ + n_);
  }

  int n_;  // threads in use
  bool by_speed_, equal_tasks_ = false;
  int64_t n_tasks_ = 0, n_measured_ = 0;
  std::vector<Share> shares_;
};

}  // namespace ingot
