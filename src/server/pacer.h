// Pacer: how often streams are written to. Time is cut into slots. A stream that has been written to just now, in the
// first half of the same slot, waits for the slot's end with all that has come till then; else what it has to say goes
// out at once. So the many tokens of short steps share the price of a write (threads that wake, a system call), and of
// steps that are longer each token goes by itself. All streams have the same slots, and share the wakes too. The more
// streams there are the longer a slot is, up to a limit: one that is alone hardly waits, and many do not cost the model
// its processors.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "server/workers.h"

namespace ingot {

class Pacer {
 public:
  using Clock = std::chrono::steady_clock;

  // A slot is as long as `each` for every stream, and `longest` at most. Slots of no length hold nothing back.
  Pacer(Workers& workers, std::chrono::milliseconds longest, std::chrono::milliseconds each = kEach)
      : workers_(workers), longest_(std::max<Clock::duration>(longest, Clock::duration(1))), each_(each) {}

  // One that is under way, as long as it lives: longer than the pacer, where an engine lets go of it last.
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
  // Runs the job on a worker when the present slot is over.
  void at_end_of_slot(std::function<void()> job);

  // A write takes some 20 us with all that it wakes: 2 % of a processor, however many streams there are, until slots
  // are longest.
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
  std::deque<Job> jobs_;  // by the time at which they are due
  size_t n_due_ = 0;      // the first of them
  Clock::time_point next_ = Clock::time_point::max();  // when end_slot() comes
};

}  // namespace ingot
