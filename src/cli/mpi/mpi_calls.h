// The interface of the module libingot_mpi.so. Only the module links MPI, so the program and its packages do not depend
// on MPI.
#pragma once
#include <string>

#include "cli/mpi/processes.h"

namespace ingot {

struct MpiCalls {
  Processes (*join)(std::chrono::milliseconds limit);  // ranks: null if there are no other processes
  void (*leave)(Processes& processes);
  void (*abort)(int code);
  std::string (*place)();
};

}  // namespace ingot

// The module's only symbol.
extern "C" const ingot::MpiCalls* ingot_mpi_calls();
