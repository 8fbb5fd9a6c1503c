#include "server/answers/pacer.h"

#include <algorithm>
#include <array>

#include "base/log.h"

namespace ingot {

void Pacer::at_end_of_slot(std::function<void()> job) {
  std::lock_guard lock(mutex_);
  const Clock::duration length = slot();
  const Clock::time_point end((Clock::now().time_since_epoch() / length + 1) * length);
  if (end < next_) wait_until(end);
  // The new job is usually the last, unless slots have just become shorter.
  jobs_.insert(
      std::ranges::upper_bound(jobs_.begin() + static_cast<ptrdiff_t>(n_due_), jobs_.end(), end, {}, &Job::due),
      {end, std::move(job)});
}

// Call with the mutex held.
void Pacer::wait_until(Clock::time_point time) {
  workers_.post_at(time, [this] { end_slot(); });
  next_ = time;
}

void Pacer::end_slot() {
  {
    std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    if (next_ <= now) next_ = Clock::time_point::max();
    while (n_due_ < jobs_.size() && jobs_[n_due_].due <= now) ++n_due_;
    try {
      if (n_due_ < jobs_.size() && jobs_[n_due_].due < next_) wait_until(jobs_[n_due_].due);
    } catch (const std::exception&) {  // out of memory: all jobs are due now
      n_due_ = jobs_.size();
    }
  }
  run_due();
}

// Runs a few jobs at a time, so that other workers can run the rest.
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
    } catch (const std::exception&) {  // out of memory: this worker runs all jobs
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
