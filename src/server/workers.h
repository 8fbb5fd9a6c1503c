// Workers: a few threads that run jobs in the order in which they came. Tokenizing, templates and JSON happen here, off the
// network and the engine thread.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/log.h"

namespace ingot {

class Workers {
 public:
  explicit Workers(int n_threads) {
    try {
      for (int i = 0; i < n_threads; ++i) threads_.emplace_back([this] { work(); });
    } catch (...) {  // no thread is to be had; those that there are must end before they are forgotten
      stop();
      throw;
    }
  }
  ~Workers() { stop(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // After stop() a job is dropped.
  void post(std::function<void()> job) {
    {
      std::lock_guard lock(mutex_);
      if (stop_) return;
      jobs_.push_back(std::move(job));
    }
    ready_.notify_one();
  }

  // Runs what waits, then no more.
  void stop() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    ready_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void work() {
    for (;;) {
      std::function<void()> job;
      {
        std::unique_lock lock(mutex_);
        ready_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
        if (jobs_.empty()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      try {
        job();
      } catch (const std::exception& error) {
        log_warn("a job failed: {}", error.what());
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> jobs_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace ingot
