// What the system knows about a 64-bit Arm processor. Implemented in isa_arm_linux.cc and isa_arm_apple.cc.
#pragma once

namespace ingot::cpu {

struct ArmFeatures {
  bool dot, i8mm, bf16;
};
ArmFeatures arm_features();

}  // namespace ingot::cpu
