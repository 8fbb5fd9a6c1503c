// FairMutex: a mutex that threads get in the order in which they came, so that a thread which takes it again and again
// holds up no other one. For work of milliseconds and more.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace ingot {

class FairMutex {
 public:
  void lock() {
    std::unique_lock lock(mutex_);
    const uint64_t ticket = next_++;
    changed_.wait(lock, [&] { return ticket == serving_; });
  }
  // False also if other threads wait.
  bool try_lock() {
    std::lock_guard lock(mutex_);
    if (next_ != serving_) return false;
    ++next_;
    return true;
  }
  void unlock() {
    {
      std::lock_guard lock(mutex_);
      ++serving_;
    }
    changed_.notify_all();
  }
  // Threads that have the mutex or wait for it.
  uint64_t n_threads() const {
    std::lock_guard lock(mutex_);
    return next_ - serving_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_ = 0, serving_ = 0;
};

}  // namespace ingot
