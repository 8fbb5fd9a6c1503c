// Loads libingot_mpi.so if mpirun or srun started this process with others.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "base/error.h"
#include "cli/mpi/mpi_calls.h"

namespace ingot {
namespace {

constexpr const char* kModule = "libingot_mpi.so";

// The number of processes started together, from the variables of Open MPI, MPICH and `srun --mpi=pmix`.
int n_started() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* size = std::getenv(name)) return std::atoi(size);
  const char* tasks = std::getenv("SLURM_NTASKS");
  return std::getenv("PMIX_RANK") != nullptr && tasks != nullptr ? std::atoi(tasks) : 1;
}

// Searches the program's folder (as built) and ../lib/ingot (as installed).
const MpiCalls& load_module() {
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  std::string why = "it is not there";
  for (const auto& path : {folder / kModule, folder.parent_path() / "lib" / "ingot" / kModule}) {
    if (!std::filesystem::exists(path)) continue;
    if (void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL))
      return *reinterpret_cast<decltype(&ingot_mpi_calls)>(dlsym(module, "ingot_mpi_calls"))();
    why = dlerror();
  }
  throw Error(
      "{} processes were started together, but {} cannot be loaded ({}): build ingot with libopenmpi-dev or "
      "libmpich-dev installed, or start a single process",
      n_started(), kModule, printable(why));
}

struct Joined {
  const MpiCalls* calls = nullptr;
  Processes processes;
};
Joined& joined() {
  static Joined one;
  return one;
}

}  // namespace

const Processes* started_together(std::chrono::milliseconds limit) {
  static std::once_flag once;
  std::call_once(once, [&] {
    if (n_started() <= 1) return;
    joined().calls = &load_module();
    joined().processes = joined().calls->join(limit);
  });
  return joined().processes.ranks ? &joined().processes : nullptr;
}

void end_processes(int code) {
  if (!joined().processes.ranks) return;
  std::fflush(nullptr);
  code != 0 ? joined().calls->abort(code) : joined().calls->leave(joined().processes);
}

void end_now(int code) {
  if (joined().processes.ranks) joined().calls->abort(code);
  std::_Exit(code);
}

std::string process_rank() {
  const Communicator* ranks = joined().processes.ranks.get();
  return ranks != nullptr && ranks->rank() > 0 ? rank_name(ranks->rank(), ranks->size()) : "";
}

std::string process_place() { return joined().calls != nullptr ? joined().calls->place() : ""; }

}  // namespace ingot
