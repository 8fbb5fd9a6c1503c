// The functions of vectors of 32 bytes, in the instructions of AVX2 that AVX-512 has too.
#pragma once
#include "backend/cpu/kernels/isa/plain.h"

namespace ingot::cpu::INGOT_ISA {

INLINE Words widen(Half bytes) { return (Words)_mm256_cvtepu8_epi16((__m128i)bytes); }
INLINE Words high_bytes(Words bytes, Words factors) {
  return (Words)_mm256_mulhi_epu16((__m256i)bytes, (__m256i)(factors << 8));
}

}  // namespace ingot::cpu::INGOT_ISA
