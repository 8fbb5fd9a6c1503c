// The time that a test's process spends on processors, for what must not take long: other work of the machine does not count, and of a
// sanitizer's build only a part does.
#pragma once
#include <ctime>

namespace ingot {

#if defined(__has_feature)  // Clang
#if __has_feature(address_sanitizer)
#define INGOT_FUZZ_BUILD  // at -O1, and with libFuzzer's counters
#endif
#endif

#if defined(INGOT_FUZZ_BUILD)
inline constexpr double kSanitizerSlowdown = 16;
#elif defined(__SANITIZE_THREAD__)
inline constexpr double kSanitizerSlowdown = 20;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr double kSanitizerSlowdown = 4;
#else
inline constexpr double kSanitizerSlowdown = 1;
#endif

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
