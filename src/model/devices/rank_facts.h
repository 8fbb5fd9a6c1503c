// Checks that the processes of one model have the same program, model and options. The check runs before anything is
// loaded, because ranks that differ would compute wrong results or wait for each other forever.
#pragma once
#include <string>

#include "backend/communicator.h"
#include "model/files/checkpoint.h"

namespace ingot {

struct RunnerOptions;

struct RankFacts {
  std::string version;  // of the program
  std::string model;    // fingerprint_of
  std::string options;  // options_text
  std::string place;    // "host node7, process 4711", for messages
};

// A hash of the sizes and of samples of all tensors. Reads some kilobytes of each file.
std::string fingerprint_of(const Checkpoint& checkpoint);
// The options that must be equal on all ranks.
std::string options_text(const RunnerOptions& options);

// Throws Error on rank 0 if a rank differs from it. The other ranks wait until rank 0 ends them.
void check_alike(Communicator& ranks, const RankFacts& own);

}  // namespace ingot
