#include <sys/sysctl.h>

#include "backend/cpu/isa_arm.h"

namespace ingot::cpu {
namespace {

bool has(const char* name) {
  int value = 0;
  size_t n_bytes = sizeof value;
  return sysctlbyname(name, &value, &n_bytes, nullptr, 0) == 0 && value != 0;
}

}  // namespace

ArmFeatures arm_features() {
  return {has("hw.optional.arm.FEAT_DotProd"), has("hw.optional.arm.FEAT_I8MM"), has("hw.optional.arm.FEAT_BF16")};
}

}  // namespace ingot::cpu
