// AVX-512 with VNNI.
#pragma once
#include "backend/cpu/kernels/isa/avx512_base.h"

namespace ingot::cpu::INGOT_ISA {

constexpr bool kBf16Dot = false, kBf16Blocks = false, kLooksUpBytes = false;

using plain::dot2_bf16;

}  // namespace ingot::cpu::INGOT_ISA
