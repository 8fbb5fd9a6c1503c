// Workers: a few threads that run jobs in the order in which they came. Tokenizing, templates and JSON happen here, off the
// network and the engine thread. Who posts wakes one thread at most, and that one the next if there is more to do: a step of the
// engine posts a job for each of its sequences, and would else pay for as many wakes.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
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
    bool wake = false;
    {
      std::lock_guard lock(mutex_);
      if (stop_) return;
      jobs_.push_back(std::move(job));
      wake = wants_wake();
    }
    if (wake) ready_.notify_one();
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
      bool wake = false;
      {
        std::unique_lock lock(mutex_);
        while (!stop_ && jobs_.empty()) {
          ++n_idle_;
          ready_.wait(lock);
          --n_idle_;
          waking_ = false;
        }
        if (jobs_.empty()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
        wake = !jobs_.empty() && wants_wake();
      }
      if (wake) ready_.notify_one();
      try {
        job();
      } catch (const std::exception& error) {
        log_warn("a job failed: {}", error.what());
      }
    }
  }

  // Whether to wake a thread; with the mutex.
  bool wants_wake() { return n_idle_ > 0 && !std::exchange(waking_, true); }

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> jobs_;
  int n_idle_ = 0;
  bool waking_ = false;  // one is on its way
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace ingot
