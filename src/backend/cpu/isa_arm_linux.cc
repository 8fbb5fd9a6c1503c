#include <sys/auxv.h>

#include "backend/cpu/isa_arm.h"

namespace ingot::cpu {

ArmFeatures arm_features() {
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  return {(first & HWCAP_ASIMDDP) != 0, (second & HWCAP2_I8MM) != 0, (second & HWCAP2_BF16) != 0};
}

}  // namespace ingot::cpu
