#include "server/pacer.h"

#include <array>

#include "base/log.h"

namespace ingot {

void Pacer::at_end_of_slot(std::function<void()> job) {
  std::lock_guard lock(mutex_);
  jobs_.push_back({slot_of(Clock::now()), std::move(job)});
  if (waits_) return;
  try {
    wait_for_end_of(jobs_.back().slot);
  } catch (...) {
    jobs_.pop_back();
    throw;
  }
}

// With the mutex.
void Pacer::wait_for_end_of(int64_t slot) {
  workers_.post_at(Clock::time_point((slot + 1) * slot_), [this] { end_slot(); });
  waits_ = true;
}

void Pacer::end_slot() {
  {
    std::lock_guard lock(mutex_);
    waits_ = false;
    const int64_t now = slot_of(Clock::now());
    while (n_due_ < jobs_.size() && jobs_[n_due_].slot < now) ++n_due_;
    try {
      if (n_due_ < jobs_.size()) wait_for_end_of(now);  // this end is late, and others wait for the next one already
    } catch (const std::exception&) {  // no memory: then now
      n_due_ = jobs_.size();
    }
  }
  run_due();
}

// A few at a time, so that other workers may help.
void Pacer::run_due() {
  for (;;) {
    std::array<std::function<void()>, 32> some;
    size_t n = 0;
    bool more = false;
    {
      std::lock_guard lock(mutex_);
      for (; n < some.size() && n_due_ > 0; ++n, --n_due_) {
        some[n] = std::move(jobs_.front().run);
        jobs_.pop_front();
      }
      more = n_due_ > 0;
    }
    if (n == 0) return;
    try {
      if (more) workers_.post([this] { run_due(); });
    } catch (const std::exception&) {  // no memory to ask for help
    }
    for (size_t i = 0; i < n; ++i) {
      try {
        some[i]();
      } catch (const std::exception& error) {
        log_warn("a job failed: {}", error.what());
      }
    }
  }
}

}  // namespace ingot
