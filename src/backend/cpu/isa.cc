#include "backend/cpu/isa.h"

#include <vector>

#include "base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace ingot::cpu {

// The same sets as in cmake/cpu_kernels.cmake.
namespace portable { extern const Kernels kKernels; extern const RecurrenceKernels kRecurrence; }
#if defined(__x86_64__)
namespace avx2 { extern const Kernels kKernels; extern const RecurrenceKernels kRecurrence; }
namespace avx_vnni { extern const Kernels kKernels; extern const RecurrenceKernels kRecurrence; }
namespace avx512 { extern const Kernels kKernels; extern const RecurrenceKernels kRecurrence; }
namespace avx512bf16 { extern const Kernels kKernels; extern const RecurrenceKernels kRecurrence; }
#elif defined(__aarch64__)
namespace neon_dot { extern const Kernels kKernels; extern const RecurrenceKernels kRecurrence; }
namespace neon_i8mm { extern const Kernels kKernels; extern const RecurrenceKernels kRecurrence; }
#endif

namespace {

#if defined(__x86_64__)
// __builtin_cpu_supports of Clang 14 supports neither f16c nor avxvnni.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
[[maybe_unused]] bool has_avx_vnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & 1 << 4) != 0;
}
#elif defined(__aarch64__)
struct ArmFeatures {
  bool dot, i8mm, bf16;
};
#if defined(__APPLE__)
bool has(const char* name) {
  int value = 0;
  size_t n_bytes = sizeof value;
  return sysctlbyname(name, &value, &n_bytes, nullptr, 0) == 0 && value != 0;
}
ArmFeatures arm_features() {
  return {has("hw.optional.arm.FEAT_DotProd"), has("hw.optional.arm.FEAT_I8MM"), has("hw.optional.arm.FEAT_BF16")};
}
#else
ArmFeatures arm_features() {
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  return {(first & HWCAP_ASIMDDP) != 0, (second & HWCAP2_I8MM) != 0, (second & HWCAP2_BF16) != 0};
}
#endif
#endif

std::vector<const Kernels*> find_available() {
  std::vector<const Kernels*> found;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
  if (has_avx512 && __builtin_cpu_supports("avx512bf16")) found.push_back(&avx512bf16::kKernels);
  if (has_avx512) found.push_back(&avx512::kKernels);
#if defined(INGOT_TEST_AVX_VNNI)
  if (has_avx512) found.push_back(&avx_vnni::kKernels);
#else
  if (has_avx2 && has_avx_vnni()) found.push_back(&avx_vnni::kKernels);
#endif
  if (has_avx2) found.push_back(&avx2::kKernels);
#elif defined(__aarch64__)
  const ArmFeatures features = arm_features();
  if (features.dot && features.i8mm && features.bf16) found.push_back(&neon_i8mm::kKernels);
  if (features.dot) found.push_back(&neon_dot::kKernels);
#endif
  found.push_back(&portable::kKernels);
  return found;
}

}  // namespace

std::span<const Kernels* const> available_kernels() {
  static const std::vector<const Kernels*> available = find_available();
  return available;
}

const Kernels& choose_kernels(std::string_view name) {
  if (name.empty()) return *available_kernels().front();
  std::string names;
  for (const Kernels* kernels : available_kernels()) {
    if (name == kernels->isa) return *kernels;
    names += (names.empty() ? "" : ", ") + std::string(kernels->isa);
  }
  throw UsageError("no instruction set '{}' on this machine: there is {}", printable(name), names);
}

const RecurrenceKernels& recurrence_of(const Kernels& kernels) {
#if defined(__x86_64__)
  if (&kernels == &avx512bf16::kKernels) return avx512bf16::kRecurrence;
  if (&kernels == &avx512::kKernels) return avx512::kRecurrence;
  if (&kernels == &avx_vnni::kKernels) return avx_vnni::kRecurrence;
  if (&kernels == &avx2::kKernels) return avx2::kRecurrence;
#elif defined(__aarch64__)
  if (&kernels == &neon_i8mm::kKernels) return neon_i8mm::kRecurrence;
  if (&kernels == &neon_dot::kKernels) return neon_dot::kRecurrence;
#endif
  return portable::kRecurrence;
}

}  // namespace ingot::cpu
