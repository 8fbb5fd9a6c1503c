// RecordedSteps: what a backend offers besides its verbs where it records a step's verbs and replays them as one (CUDA
// graphs), so that nobody sees them singly any more. For `--check-replay` and `--trace-steps`.
#pragma once
#include <memory>

#include "base/trace_file.h"

namespace ingot {

class RecordedSteps {
 public:
  virtual ~RecordedSteps() = default;
  // From now on each replay is compared, bit by bit, with the same verbs launched plainly: a replay that differs throws
  // Error. Slow.
  virtual void check_replays() = 0;
  // A span of each step's time on the device, from its first verb to its draws, on track "gpu". Costs two events a
  // step.
  virtual void trace_steps(std::shared_ptr<TraceFile> file) = 0;
};

}  // namespace ingot
