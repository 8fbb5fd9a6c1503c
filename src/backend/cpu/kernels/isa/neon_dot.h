// NEON with dot products.
#pragma once
#include "backend/cpu/kernels/isa/neon_base.h"

namespace ingot::cpu::INGOT_ISA {

constexpr int kActQuads = 1;
constexpr bool kBf16Dot = false;

using plain::dot2_bf16;

}  // namespace ingot::cpu::INGOT_ISA
#include "backend/cpu/kernels/isa/neon_lanes.h"
