// Pipeline: the stages of a model (stage.h) that work on different steps at the same time. A thread for each stage
// takes the steps in order. The residual stream goes from stage to stage through host memory. The last stage samples.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "model/devices/stage.h"

namespace ingot {

class Pipeline {
 public:
  // of_step: the most floats of a step's rows, [max_tokens, dim]. on_fault is called with each fault, and may replace
  // it.
  using OnFault = std::function<std::exception_ptr(std::exception_ptr)>;
  Pipeline(std::vector<std::unique_ptr<Stage>> stages, int n_in_flight, size_t of_step, OnFault on_fault = {});
  ~Pipeline();  // after the step that each stage is working on

  int n_in_flight() const { return n_in_flight_; }  // the stages of the model, those of other processes included

  // As the functions of Runner (runner.h), for at most n_in_flight steps in flight. One thread calls them. A fault of a
  // step is thrown by logits() and wait(). A step that was not sampled is dropped by the next forward. When wait()
  // throws DeviceLost, no step is in flight any more.
  void forward(const Batch& batch);
  // For all ranks but the first, which has the requests: in place of forward, sample and wait. `owner` has the batch's
  // arrays.
  void follow(const Batch& batch, std::shared_ptr<const void> owner);
  void sample(std::span<const SampleRow> rows);
  std::vector<Sampled> wait();
  std::vector<float> logits();
  void drain();  // returns when all sampled steps are complete, so that the caller may use the devices

 private:
  enum class Draws : uint8_t { kUnknown, kWanted, kDropped };
  struct Job {
    Batch batch;
    std::span<const SampleRow> rows;
    Draws draws = Draws::kUnknown;
    std::shared_ptr<const void> owner = {};
    std::vector<Sampled> drawn = {};
    std::exception_ptr fault = {};  // of any stage; later stages skip the step
  };

  void work(size_t stage);
  void finish(Job& job, bool draws);
  Job& job_of(int64_t step) { return jobs_[static_cast<size_t>(step - first_)]; }
  float* rows_after(size_t stage, int64_t step) const;
  void drop_last(std::unique_lock<std::mutex>& lock);
  void end();

  std::exception_ptr current_fault() const;

  const std::vector<std::unique_ptr<Stage>> stages_;
  const int n_in_flight_;
  const OnFault on_fault_;
  // Of each stage but the last: the rows that the stage passes on, [n_in_flight, max_tokens, dim], or null.
  std::vector<std::shared_ptr<float[]>> rows_;
  const size_t place_floats_;
  std::vector<std::thread> threads_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;        // steps that no wait() has returned; a thread keeps a reference to the one it works on
  int64_t first_ = 0;           // number of jobs_.front()
  int64_t n_steps_ = 0;         // given to forward
  std::vector<int64_t> n_run_;  // [n_stages]: steps that the stage has run
  int64_t n_drawn_ = 0;         // steps that are sampled or dropped
  bool ends_ = false;
};

}  // namespace ingot
