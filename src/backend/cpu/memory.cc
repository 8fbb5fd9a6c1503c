#include "backend/cpu/memory.h"

#include "base/error.h"
#include "base/system.h"

namespace ingot::cpu {

Memory::Memory(size_t n_bytes) {
  if (n_bytes == 0) return;
  constexpr size_t kHugePage = size_t{2} << 20;
  const bool huge = n_bytes >= 2 * kHugePage;
  const size_t mapped = n_bytes + (huge ? kHugePage : 0);
  void* mapping = take_pages(mapped);
  if (mapping == nullptr) {
    throw Error("out of memory: {} MiB more are needed; use a smaller model or context", (n_bytes >> 20) + 1);
  }
  mapping_ = mapping;
  mapped_ = mapped;
  data_ = static_cast<uint8_t*>(mapping);
  size_ = n_bytes;
  if (huge) {
    data_ += (kHugePage - reinterpret_cast<uintptr_t>(data_) % kHugePage) % kHugePage;
    ask_for_large_pages(data_, n_bytes / kHugePage * kHugePage);
  }
}

Memory::~Memory() {
  if (mapping_ != nullptr) free_pages(mapping_, mapped_);
}

}  // namespace ingot::cpu
