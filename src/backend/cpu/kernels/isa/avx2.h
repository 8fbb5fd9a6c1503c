// AVX2, FMA and F16C. Bytes are multiplied into 16-bit sums of two products.
#pragma once
#include "backend/cpu/kernels/isa/avx2_base.h"

namespace ingot::cpu::INGOT_ISA {

constexpr bool kSignedCodes = true, kAddsPairs = true;

// Sums in 32-bit and in 16-bit lanes. From plain additions, GCC computes all products first, which do not fit in
// registers, and copies each sum to another register. Assembly prevents both.
INLINE I add(I acc, I v) {
  asm volatile("vpaddd %1, %0, %0" : "+x"(acc) : "x"(v));
  return acc;
}
INLINE I add_pairs(I acc, I v) {
  asm volatile("vpaddw %1, %0, %0" : "+x"(acc) : "x"(v));
  return acc;
}

INLINE I dot2_int16(I acc, I a, I b) { return add(acc, (I)_mm256_madd_epi16((__m256i)a, (__m256i)b)); }
INLINE Sums dot_words(Sums acc, Words a, Words b) { return dot2_int16(acc, (I)a, (I)b); }

// Sums of two products in 16-bit lanes, for codes below 128; adding some of them first takes fewer instructions.
INLINE I pairs_of(I codes, I a) { return (I)_mm256_maddubs_epi16((__m256i)codes, (__m256i)a); }
INLINE I sums_of_pairs(I pairs) { return (I)_mm256_madd_epi16((__m256i)pairs, _mm256_set1_epi16(1)); }

INLINE I dot4_small(I acc, I codes, I a) { return add(acc, sums_of_pairs(pairs_of(codes, a))); }
INLINE I dot4(I acc, I codes, I a) {  // |code| <= 128 and |a| <= 127, so pairs stay within 16 bits here too
  return dot4_small(acc, (I)_mm256_abs_epi8((__m256i)codes), (I)_mm256_sign_epi8((__m256i)a, (__m256i)codes));
}

}  // namespace ingot::cpu::INGOT_ISA
