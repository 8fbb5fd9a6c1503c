// NEON, as every 64-bit Arm machine has it.
#pragma once
#include "backend/cpu/kernels/isa/neon_base.h"

namespace ingot::cpu::INGOT_ISA {

constexpr int kActQuads = 1;
constexpr bool kBf16Dot = false, kMultipliesByLane = false;

using plain::dot2_bf16;
using plain::dot4;
using plain::dot4_small;

}  // namespace ingot::cpu::INGOT_ISA
#include "backend/cpu/kernels/isa/plain_group.h"
