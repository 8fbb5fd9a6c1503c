// Pacer: how often streams are written to. Time is cut into slots. A stream that has been written to just now, in the first half of the
// same slot, waits for the slot's end with all that has come till then; else what it has to say goes out at once. So the many tokens of
// short steps share the price of a write (threads that wake, a system call), and of steps that are longer each token goes by itself.
// All streams have the same slots, and share the wakes too.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

#include "server/workers.h"

namespace ingot {

class Pacer {
 public:
  using Clock = std::chrono::steady_clock;

  // Slots of no length hold nothing back.
  Pacer(Workers& workers, std::chrono::milliseconds slot)
      : workers_(workers), slot_(slot > Clock::duration::zero() ? slot : Clock::duration(1)) {}

  Workers& workers() { return workers_; }
  bool should_wait(Clock::time_point now, Clock::time_point written) const {
    return now - written < slot_ / 2 && in_one_slot(now, written);
  }
  bool in_one_slot(Clock::time_point a, Clock::time_point b) const { return slot_of(a) == slot_of(b); }
  // Runs the job on a worker when the present slot is over.
  void at_end_of_slot(std::function<void()> job);

 private:
  struct Job {
    int64_t slot;
    std::function<void()> run;
  };
  int64_t slot_of(Clock::time_point t) const { return t.time_since_epoch() / slot_; }
  void wait_for_end_of(int64_t slot);
  void end_slot();
  void run_due();

  Workers& workers_;
  const Clock::duration slot_;
  std::mutex mutex_;
  std::deque<Job> jobs_;
  size_t n_due_ = 0;    // the first of them: their slot is over
  bool waits_ = false;  // end_slot() is on its way
};

}  // namespace ingot
