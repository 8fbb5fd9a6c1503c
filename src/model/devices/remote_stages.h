// The stages of other processes, as stages of this process's Pipeline. Each has a thread of the pipeline, so a process
// sends and receives the rows of one step while its device works on another.
//
// - The residual stream goes from each rank to the rank with the same place in the next stage.
// - Rank 0 has the requests. For each step, it tells the first rank of the last stage to draw tokens, to send the
//   logits, or to drop the step, and receives the answer.
#pragma once
#include <memory>
#include <vector>

#include "backend/communicator.h"
#include "model/devices/stage.h"

namespace ingot {

// `own`: the stage of this process. `n_stages` divides the number of ranks; successive ranks have the same stage.
// `dim`: numbers of a row.
struct StagePlace {
  std::shared_ptr<Communicator> ranks;
  int n_stages = 1;
  int dim = 0, n_vocab = 0;
};
std::vector<std::unique_ptr<Stage>> linked_stages(std::unique_ptr<Stage> own, const StagePlace& place);

}  // namespace ingot
