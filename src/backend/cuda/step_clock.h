// StepClock: when the device began and ended each step, for the trace. Events on the stream say so, and are read once
// they have passed, so nothing waits for them.
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

  void begin(int n_tokens, int n_seqs);  // the step's verbs come next
  void end();                            // its draws have been launched
  void collect();                        // writes the steps that are done

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
      nullptr;  // an event, and when it was: times are reckoned from the last one, for long ones are coarse
  TraceFile::Clock::time_point last_time_;
};

}  // namespace ingot::cuda
