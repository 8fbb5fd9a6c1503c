// Processor time of a test's process, for limits on running time. Other programs do not change it. In a sanitizer
// build, the time is divided by the expected slowdown.
#pragma once
#include <ctime>

namespace ingot {

#if defined(__has_feature)  // Clang
#if __has_feature(address_sanitizer)
#define INGOT_ADDRESS_SANITIZER
#endif
#if __has_feature(thread_sanitizer)
#define INGOT_THREAD_SANITIZER
#endif
#elif defined(__SANITIZE_ADDRESS__)  // GCC
#define INGOT_ADDRESS_SANITIZER
#elif defined(__SANITIZE_THREAD__)
#define INGOT_THREAD_SANITIZER
#endif

// The allowed slowdown in a sanitizer build: code with -O1, tests with -O0.
#if defined(INGOT_THREAD_SANITIZER)
inline constexpr double kSanitizerSlowdown = 40;
#elif defined(INGOT_ADDRESS_SANITIZER)
inline constexpr double kSanitizerSlowdown = 16;
#else
inline constexpr double kSanitizerSlowdown = 1;
#endif
inline constexpr bool kIsSanitized = kSanitizerSlowdown > 1;

class CpuTimer {
 public:
  double seconds() const { return (now() - start_) / kSanitizerSlowdown; }

 private:
  static double now() {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  }
  const double start_ = now();
};

}  // namespace ingot
