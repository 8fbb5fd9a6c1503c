#include <linux/mempolicy.h>
#include <malloc.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "base/system.h"

namespace ingot {
namespace {

// A mask with the bit of each number set.
std::vector<unsigned long> bit_mask(const std::vector<int>& numbers) {
  constexpr size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  std::vector<unsigned long> mask;
  for (const int number : numbers) {
    const auto place = static_cast<size_t>(number) / kBits;
    if (mask.size() <= place) mask.resize(place + 1);
    mask[place] |= 1UL << static_cast<size_t>(number) % kBits;
  }
  return mask;
}

}  // namespace

void ask_for_large_pages(void* memory, size_t n_bytes) { madvise(memory, n_bytes, MADV_HUGEPAGE); }
void give_back_memory() { malloc_trim(0); }
int cpus_by_affinity() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}
int current_cpu() { return sched_getcpu(); }

// Direct system calls, because cpu_set_t holds only 1,024 CPUs and the C library has no mbind().
bool run_on_cpus(const std::vector<int>& cpus) {
  const std::vector<unsigned long> mask = bit_mask(cpus);
  return syscall(SYS_sched_setaffinity, 0, mask.size() * sizeof(mask[0]), mask.data()) == 0;
}
bool interleave_pages(void* memory, size_t n_bytes, const std::vector<int>& nodes) {
  const std::vector<unsigned long> mask = bit_mask(nodes);
  const size_t n_bits = mask.size() * sizeof(mask[0]) * CHAR_BIT + 1;  // the kernel reads one bit less
  return syscall(SYS_mbind, memory, n_bytes, MPOL_INTERLEAVE, mask.data(), n_bits, 0) == 0;
}

}  // namespace ingot
