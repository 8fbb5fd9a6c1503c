// For builds without MPI.
#include <cstdlib>

#include "base/error.h"
#include "cli/processes.h"

namespace ingot {

const Processes* started_together(std::chrono::milliseconds) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* size = std::getenv(name); size != nullptr && std::atoi(size) > 1)
      throw Error(
          "mpirun started {} processes, and this ingot was built without MPI: install libopenmpi-dev or libmpich-dev "
          "and "
          "build it again, or start it alone",
          std::atoi(size));
  return nullptr;
}

void end_processes(int) {}
void end_now(int code) { std::_Exit(code); }

std::string process_place() { return ""; }

const char* mpi_version() { return "none"; }

}  // namespace ingot
