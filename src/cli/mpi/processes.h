// The processes that mpirun or `srun --mpi=pmix` started for one model. Each process is one rank (mpi/).
#pragma once
#include <chrono>
#include <memory>
#include <string>

#include "backend/communicator.h"

namespace ingot {

struct Processes {
  std::shared_ptr<Communicator> ranks;
  int local_rank = 0, n_local = 1;  // among the ranks of this host
};

// Null if this process was started alone. The first call connects to the other processes. Throws Error if there are
// other processes but no libingot_mpi.so.
const Processes* started_together(std::chrono::milliseconds limit);

// Call before the program ends. A nonzero code ends the other processes too.
void end_processes(int code);

// Ends this process and the others without running destructors.
[[noreturn]] void end_now(int code);

// "rank 1 of 2", for messages; "" in the first process, and in a process that has not met others.
std::string process_rank();
std::string process_place();  // "host node7, process 4711", for messages

}  // namespace ingot
