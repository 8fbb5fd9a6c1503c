// There is no MPI module for Windows: a process is always alone.
#include <cstdlib>

#include "cli/mpi/mpi_calls.h"

namespace ingot {

const Processes* started_together(std::chrono::milliseconds) { return nullptr; }
void end_processes(int) {}
void end_now(int code) { std::_Exit(code); }
std::string process_rank() { return ""; }
std::string process_place() { return ""; }

}  // namespace ingot
