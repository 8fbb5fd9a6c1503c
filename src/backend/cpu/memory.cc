#include "backend/cpu/memory.h"

#include <sys/mman.h>

#include "base/error.h"

namespace ingot::cpu {

Memory::Memory(size_t n_bytes) {
  if (n_bytes == 0) return;
  constexpr size_t kHugePage = size_t{2} << 20;
  const bool huge = n_bytes >= 2 * kHugePage;
  const size_t mapped = n_bytes + (huge ? kHugePage : 0);
  void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    throw Error("out of memory: {} MiB more are needed; use a smaller model or context", (n_bytes >> 20) + 1);
  }
  mapping_ = mapping;
  mapped_ = mapped;
  data_ = static_cast<uint8_t*>(mapping);
  size_ = n_bytes;
  if (huge) {
    data_ += (kHugePage - reinterpret_cast<uintptr_t>(data_) % kHugePage) % kHugePage;
#if defined(MADV_HUGEPAGE)
    madvise(data_, n_bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // only a hint: nothing depends on the result
#endif
  }
}

Memory::~Memory() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_);
}

}  // namespace ingot::cpu
