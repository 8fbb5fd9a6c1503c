// What the module libingot_mpi.so gives to the program. Only the module links MPI, so the program runs on machines
// without MPI, and its wheel and package need none.
#pragma once
#include <string>

#include "cli/processes.h"

namespace ingot {

struct MpiCalls {
  Processes (*join)(std::chrono::milliseconds limit);  // ranks: null if this process is alone
  void (*leave)(Processes& processes);
  void (*abort)(int code);
  std::string (*place)();
};

}  // namespace ingot

// The module's only symbol.
extern "C" const ingot::MpiCalls* ingot_mpi_calls();
