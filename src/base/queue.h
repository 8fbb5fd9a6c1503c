// Queue: many producers, one consumer. Requests reach the engine thread through a Queue.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace ingot {

template <class T>
class Queue {
 public:
  // Returns false and drops the value when the queue is closed.
  bool push(T value) {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return false;
      items_.push_back(std::move(value));
    }
    ready_.notify_one();
    return true;
  }

  // Takes every waiting item, oldest first. With `block`, waits until an item arrives or the queue is closed.
  std::vector<T> drain(bool block) {
    std::unique_lock lock(mutex_);
    if (block) ready_.wait(lock, [&] { return closed_ || !items_.empty(); });
    return std::exchange(items_, {});
  }

  // As drain(true), but waits at most `timeout`.
  std::vector<T> drain_for(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, timeout, [&] { return closed_ || !items_.empty(); });
    return std::exchange(items_, {});
  }

  std::vector<T> drain_until(std::chrono::steady_clock::time_point limit) {
    std::unique_lock lock(mutex_);
    ready_.wait_until(lock, limit, [&] { return closed_ || !items_.empty(); });
    return std::exchange(items_, {});
  }

  // Refuses later pushes; waiting items can still be drained.
  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  bool closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<T> items_;
  bool closed_ = false;
};

}  // namespace ingot
