// Pacer: decides how often streams are written to. Time is divided into slots. If a stream was already written to in
// this slot, less than half a slot ago, its new output is collected and written at the end of the slot. Otherwise the
// output is written at once. So tokens of short steps share the cost of a write (waking threads, a system call), and
// tokens of longer steps are written one by one. All streams have the same slots, so they share wake-ups too. The slot
// length grows with the number of streams, up to a limit. So a single stream hardly waits, and many streams do not take
// processor time from the model.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "base/workers.h"

namespace ingot {

class Pacer {
 public:
  using Clock = std::chrono::steady_clock;

  // A slot lasts `each` times the number of streams, and at most `longest`. With slots of length zero, no output waits.
  // Stop the workers before destroying the pacer, because they may run its jobs.
  Pacer(Workers& workers, std::chrono::milliseconds longest, std::chrono::milliseconds each = kEach)
      : workers_(workers), longest_(std::max<Clock::duration>(longest, Clock::duration(1))), each_(each) {}

  // Counts a stream for the lifetime of the object. The object may outlive the pacer, because an engine may release the
  // object last.
  class Stream {
   public:
    explicit Stream(Pacer& pacer) : n_streams_(pacer.n_streams_) { ++*n_streams_; }
    ~Stream() { --*n_streams_; }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

   private:
    const std::shared_ptr<std::atomic<int64_t>> n_streams_;
  };

  Workers& workers() { return workers_; }
  bool should_wait(Clock::time_point now, Clock::time_point written) const {
    return now - written < slot() / 2 && in_one_slot(now, written);
  }
  bool in_one_slot(Clock::time_point a, Clock::time_point b) const {
    const Clock::duration length = slot();
    return a.time_since_epoch() / length == b.time_since_epoch() / length;
  }
  // Runs the job on a worker at the end of the current slot.
  void at_end_of_slot(std::function<void()> job);

  // A write takes about 20 us, including all the threads that it wakes. So writes take 2 % of a processor for any
  // number of streams, until slots reach `longest`.
  static constexpr std::chrono::milliseconds kEach{1};

 private:
  struct Job {
    Clock::time_point due;
    std::function<void()> run;
  };
  Clock::duration slot() const {
    return std::clamp<Clock::duration>(n_streams_->load() * each_, Clock::duration(1), longest_);
  }
  void wait_until(Clock::time_point time);
  void end_slot();
  void run_due();

  Workers& workers_;
  const Clock::duration longest_, each_;
  const std::shared_ptr<std::atomic<int64_t>> n_streams_ = std::make_shared<std::atomic<int64_t>>(0);
  std::mutex mutex_;
  std::deque<Job> jobs_;  // in order of due time
  size_t n_due_ = 0;      // how many jobs at the front are due
  Clock::time_point next_ = Clock::time_point::max();  // time of the next end_slot()
};

}  // namespace ingot
