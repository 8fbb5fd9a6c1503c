// StepClock: records when the device began and ended each step, for the trace. Events on the stream mark these times.
// The host reads only events that have completed, so it never waits for one.
#pragma once
#include <cuda_runtime_api.h>

#include <deque>
#include <memory>
#include <vector>

#include "backend/cuda/cuda_device.h"
#include "base/trace_file.h"

namespace ingot::cuda {

class StepClock {
 public:
  StepClock(std::shared_ptr<TraceFile> file, Device& device);
  ~StepClock();

  void begin(int n_tokens, int n_seqs);  // before the step's ops
  void end();                            // after the launch of the step's draws
  void collect();                        // writes the steps that are complete

 private:
  struct Step {
    cudaEvent_t begin, end = nullptr;
    int n_tokens, n_seqs;
  };
  cudaEvent_t record();

  const std::shared_ptr<TraceFile> file_;
  const cudaStream_t stream_;
  std::vector<cudaEvent_t> free_;
  std::deque<Step> steps_;
  cudaEvent_t last_ =
      nullptr;  // its host time is last_time_; later times are relative to it, because long intervals are inexact
  TraceFile::Clock::time_point last_time_;
};

}  // namespace ingot::cuda
