// macOS binds no threads to CPUs and places no memory on nodes.
#include <cerrno>

#include "base/system.h"

namespace ingot {

void ask_for_large_pages(void*, size_t) {}
void give_back_memory() {}
int cpus_by_affinity() { return 0; }
int current_cpu() { return -1; }
bool run_on_cpus(const std::vector<int>&) {
  errno = ENOSYS;
  return false;
}
bool interleave_pages(void*, size_t, const std::vector<int>&) {
  errno = ENOSYS;
  return false;
}

}  // namespace ingot
