// RecordedSteps: extra functions of a backend that records the ops of a step and replays them as one (CUDA graphs).
// Decorators cannot see the single ops of a replay. For `--check-replay` and `--trace-steps`.
#pragma once
#include <memory>

#include "base/trace_file.h"

namespace ingot {

class RecordedSteps {
 public:
  virtual ~RecordedSteps() = default;
  // From now on, compares each replay bit by bit with the same ops launched one by one. Throws Error if a replay
  // differs. Slow.
  virtual void check_replays() = 0;
  // Writes a span on track "gpu" for each step's time on the device, from its first op to the end of its draws. Costs
  // two events a step.
  virtual void trace_steps(std::shared_ptr<TraceFile> file) = 0;
};

}  // namespace ingot
