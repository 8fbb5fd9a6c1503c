// For loops that wait for another thread or a device.
#pragma once

namespace ingot {

// Tells the processor that the caller waits in a loop, so that the processor runs the loop more slowly.
inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

}  // namespace ingot
