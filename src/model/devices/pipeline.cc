#include "model/devices/pipeline.h"

#include <utility>

#include "base/check.h"
#include "base/device_lost.h"
#include "base/thread_start.h"

namespace ingot {

Pipeline::Pipeline(std::vector<std::unique_ptr<Stage>> stages, int n_in_flight, size_t of_step, OnFault on_fault)
    : stages_(std::move(stages)),
      n_in_flight_(n_in_flight),
      on_fault_(std::move(on_fault)),
      place_floats_(of_step),
      n_run_(stages_.size()) {
  CHECK(stages_.size() > 1);
  for (size_t s = 0; s + 1 < stages_.size(); ++s)
    rows_.push_back(stages_[s]->host_floats(static_cast<size_t>(n_in_flight_) * place_floats_));
  try {
    for (size_t s = 0; s < stages_.size(); ++s)
      threads_.push_back(start_thread("a stage", [this, s] { return std::thread([this, s] { work(s); }); }));
  } catch (...) {
    end();
    throw;
  }
}

Pipeline::~Pipeline() { end(); }

void Pipeline::end() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Pipeline::forward(const Batch& batch) {
  std::unique_lock lock(mutex_);
  drop_last(lock);
  CHECK_LT(n_steps_ - first_, n_in_flight_);
  jobs_.push_back({.batch = batch, .rows = {}});
  ++n_steps_;
  changed_.notify_all();
}

void Pipeline::follow(const Batch& batch, std::shared_ptr<const void> owner) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return n_steps_ - n_drawn_ < n_in_flight_; });
  for (; first_ < n_drawn_; ++first_) jobs_.pop_front();
  jobs_.push_back({.batch = batch, .rows = {}, .draws = Draws::kDropped, .owner = std::move(owner)});
  ++n_steps_;
  changed_.notify_all();
}

// Waits until a step that was not sampled has passed all stages, because its batch may change now.
void Pipeline::drop_last(std::unique_lock<std::mutex>& lock) {
  if (jobs_.empty() || jobs_.back().draws != Draws::kUnknown) return;
  jobs_.back().draws = Draws::kDropped;
  changed_.notify_all();
  changed_.wait(lock, [&] { return n_drawn_ == n_steps_; });
  jobs_.pop_back();
  --n_steps_, --n_drawn_;
  for (int64_t& n : n_run_) --n;
}

void Pipeline::sample(std::span<const SampleRow> rows) {
  const std::lock_guard lock(mutex_);
  Job& last = jobs_.back();
  CHECK(last.draws == Draws::kUnknown);
  last.rows = rows, last.draws = Draws::kWanted;
  changed_.notify_all();
}

std::vector<Sampled> Pipeline::wait() {
  std::unique_lock lock(mutex_);
  CHECK(!jobs_.empty() && jobs_.front().draws == Draws::kWanted);
  changed_.wait(lock, [&] { return n_drawn_ > first_; });
  const Job done = std::move(jobs_.front());
  jobs_.pop_front();
  ++first_;
  if (!done.fault) return done.drawn;
  try {
    std::rethrow_exception(done.fault);
  } catch (const DeviceLost&) {  // no wait() follows, so the caller may free the arrays of the other steps
    drop_last(lock);
    changed_.wait(lock, [&] { return n_drawn_ == n_steps_; });
    throw;
  }
}

std::vector<float> Pipeline::logits() {
  std::unique_lock lock(mutex_);
  CHECK(!jobs_.empty() && jobs_.back().draws == Draws::kUnknown);
  changed_.wait(lock, [&] { return n_run_.back() == n_steps_; });
  const Job& last = jobs_.back();
  if (last.fault) std::rethrow_exception(last.fault);
  return stages_.back()->logits(last.batch);
}

void Pipeline::drain() {
  std::unique_lock lock(mutex_);
  drop_last(lock);
  changed_.wait(lock, [&] { return n_drawn_ == n_steps_; });
}

// ---- the stages' threads ----

void Pipeline::work(size_t stage) {
  const bool is_last = stage + 1 == stages_.size();
  for (;;) {
    std::unique_lock lock(mutex_);
    int64_t& n_run = n_run_[stage];
    const auto has_next = [&] { return n_run < (stage == 0 ? n_steps_ : n_run_[stage - 1]); };
    changed_.wait(lock, [&] { return ends_ || has_next(); });
    if (ends_) return;
    const int64_t step = n_run;
    Job& job = job_of(step);
    if (!job.fault) {
      lock.unlock();
      std::exception_ptr fault;
      try {
        const float* in = stage > 0 ? rows_after(stage - 1, step) : nullptr;
        stages_[stage]->run(job.batch, in, is_last ? nullptr : rows_after(stage, step));
      } catch (...) {
        fault = current_fault();
      }
      lock.lock();
      job.fault = fault;
    }
    ++n_run;
    changed_.notify_all();
    if (!is_last) continue;
    changed_.wait(lock, [&] { return ends_ || job.draws != Draws::kUnknown; });
    if (ends_) return;
    const bool draws = job.draws == Draws::kWanted, has_fault = job.fault != nullptr;
    lock.unlock();
    if (!has_fault) finish(job, draws);
    lock.lock();
    ++n_drawn_;
    changed_.notify_all();
  }
}

// Only the last stage's thread and wait(), which comes later, use what this function writes.
void Pipeline::finish(Job& job, bool draws) {
  try {
    if (draws) {
      job.drawn = stages_.back()->draw(job.batch, job.rows);
    } else {
      stages_.back()->drop(job.batch);
    }
  } catch (...) {
    job.fault = current_fault();
  }
}

// Within a catch block.
std::exception_ptr Pipeline::current_fault() const {
  return on_fault_ ? on_fault_(std::current_exception()) : std::current_exception();
}

float* Pipeline::rows_after(size_t stage, int64_t step) const {
  float* rows = rows_[stage].get();
  return rows == nullptr ? nullptr : rows + step % n_in_flight_ * static_cast<int64_t>(place_floats_);
}

}  // namespace ingot
