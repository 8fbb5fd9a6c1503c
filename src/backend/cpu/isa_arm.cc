// Which kernels a 64-bit Arm machine can run. The same sets as in cmake/cpu_kernels.cmake.
#if defined(__APPLE__)
#include <sys/sysctl.h>
#else
#include <sys/auxv.h>
#endif

#include "backend/cpu/isa.h"

namespace ingot::cpu {

namespace portable { extern const Kernels kKernels; }
namespace neon_dot { extern const Kernels kKernels; }
namespace neon_i8mm { extern const Kernels kKernels; }

namespace {

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

}  // namespace

std::vector<const Kernels*> find_kernels() {
  const ArmFeatures features = arm_features();
  std::vector<const Kernels*> found;
  if (features.dot && features.i8mm && features.bf16) found.push_back(&neon_i8mm::kKernels);
  if (features.dot) found.push_back(&neon_dot::kKernels);
  found.push_back(&portable::kKernels);
  return found;
}

}  // namespace ingot::cpu
