// Workers: a few threads that run jobs in order of arrival. Tokenizing, templates, JSON and slow masks run here, not on
// the network's or the engine's thread. A post wakes at most one thread, and that thread wakes the next if there are
// more jobs.
// A step of the engine posts a job for each sequence. Otherwise each of these jobs would cost the step one wake-up. A
// job may also have a start time.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/thread_start.h"

namespace ingot {

class Workers {
 public:
  using Clock = std::chrono::steady_clock;

  // If the system does not start n_threads threads, warns and uses fewer; throws Error if no thread starts. name: for
  // these messages.
  explicit Workers(int n_threads, std::string_view name = "the server's workers",
                   const ThreadStarter& start = start_std_thread)
      : threads_(start_workers(
            n_threads, name, [this](int) { work(); }, start)) {}
  ~Workers() { stop(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // After stop(), jobs are dropped.
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

  // Runs step() again and again, until it returns false. After each step, the jobs that wait then run first. So other
  // jobs wait for one short step at most, not for all of the long work.
  void post_steps(std::function<bool()> step) {
    post([this, step = std::move(step)] {
      if (step()) post_steps(step);
    });
  }

  // Posts the job at the given time.
  void post_at(Clock::time_point when, std::function<void()> job) {
    bool wake = false;
    {
      std::lock_guard lock(mutex_);
      if (stop_) return;
      const auto place = later_.emplace(when, std::move(job));
      wake = place == later_.begin() && wants_wake();  // the woken thread waits for this job
    }
    if (wake) ready_.notify_one();
  }

  // Runs the waiting jobs, then ends.
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
        while (!take(job)) {
          if (stop_) return;
          wait(lock);
        }
        const bool unwatched = !later_.empty() && n_watching_ == 0;
        wake = (unwatched || !jobs_.empty()) && wants_wake();
      }
      if (wake) ready_.notify_one();
      try {
        job();
      } catch (const std::exception& error) {
        log_warn("a job failed: {}", error.what());
      }
    }
  }

  // Call with the mutex held. Allocates no memory, because a failure could not be reported.
  bool take(std::function<void()>& job) {
    if (!later_.empty() && (stop_ || later_.begin()->first <= Clock::now())) {
      job = std::move(later_.begin()->second);
      later_.erase(later_.begin());
      return true;
    }
    if (jobs_.empty()) return false;
    job = std::move(jobs_.front());
    jobs_.pop_front();
    return true;
  }

  void wait(std::unique_lock<std::mutex>& lock) {
    ++n_idle_;
    if (later_.empty()) {
      ready_.wait(lock);
    } else {
      ++n_watching_;
      const Clock::time_point first = later_.begin()->first;
      ready_.wait_until(lock, first);
      --n_watching_;
    }
    --n_idle_;
    waking_ = false;
  }

  // Whether to wake a thread; call with the mutex held.
  bool wants_wake() { return n_idle_ > 0 && !std::exchange(waking_, true); }

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> jobs_;
  std::multimap<Clock::time_point, std::function<void()>> later_;
  int n_idle_ = 0, n_watching_ = 0;  // idle threads; those among them that wait for the time of the first later job
  bool waking_ = false;              // a woken thread has not run yet
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace ingot
