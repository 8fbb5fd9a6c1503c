// The device of docs/add-a-backend.md. Its memory has addresses that are invalid on the host. Dereferencing one, or
// copying past a buffer's end, aborts the program.
#pragma once
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "base/check.h"

namespace ingot {

inline constexpr size_t kToyBytes = size_t{256} << 20;

struct ToyMemory {
  std::map<uintptr_t, std::vector<char>> buffers;  // by address
  uintptr_t next = uintptr_t{0xdead} << 48;        // never a valid address on a 64-bit processor
  size_t n_bytes = 0;
};
inline ToyMemory& toy_memory() {
  static ToyMemory memory;
  return memory;
}

inline size_t toy_free_bytes() { return kToyBytes - toy_memory().n_bytes; }

inline void* toy_alloc(size_t n) {
  ToyMemory& memory = toy_memory();
  CHECK_LE(n, toy_free_bytes());
  constexpr uintptr_t kAlignment = 4096;
  const uintptr_t address = memory.next;
  memory.next += (n / kAlignment + 2) * kAlignment;  // a gap after each buffer
  memory.buffers[address].assign(n, '\xff');          // NaN, in f16 and in f32
  memory.n_bytes += n;
  return reinterpret_cast<void*>(address);
}

inline void toy_free(void* address) {
  const auto found = toy_memory().buffers.find(reinterpret_cast<uintptr_t>(address));
  CHECK(found != toy_memory().buffers.end());
  toy_memory().n_bytes -= found->second.size();
  toy_memory().buffers.erase(found);
}

// The n bytes at an address of the device.
inline char* toy_bytes(const void* address, size_t n) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  auto after = toy_memory().buffers.upper_bound(at);
  CHECK(after != toy_memory().buffers.begin());
  auto& [begin, bytes] = *--after;
  CHECK_LE(at - begin + n, bytes.size());
  return bytes.data() + (at - begin);
}

inline void toy_write(void* to, const void* from, size_t n) { std::memcpy(toy_bytes(to, n), from, n); }
inline void toy_read(void* to, const void* from, size_t n) { std::memcpy(to, toy_bytes(from, n), n); }

}  // namespace ingot
