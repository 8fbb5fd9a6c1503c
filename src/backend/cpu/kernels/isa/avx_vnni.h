// AVX2 with AVX-VNNI: the 256-bit instructions of AVX-512 VNNI in a shorter encoding. The arithmetic is the same, so a
// machine with AVX-512 can test these kernels in its own encoding. CMake defines INGOT_VNNI_ENCODING as "vex", or for
// such tests as "evex".
#pragma once
#include "backend/cpu/kernels/isa/avx2_base.h"

#define INGOT_VNNI(name) "%{" INGOT_VNNI_ENCODING "%} vp" name " %2, %1, %0"

namespace ingot::cpu::INGOT_ISA {

constexpr bool kSignedCodes = false, kAddsPairs = false;

INLINE I dot2_int16(I acc, I a, I b) {
  asm(INGOT_VNNI("dpwssd") : "+x"(acc) : "x"(a), "x"(b));
  return acc;
}
INLINE Sums dot_words(Sums acc, Words a, Words b) { return dot2_int16(acc, (I)a, (I)b); }
INLINE I dot4(I acc, I codes, I a) {
  asm(INGOT_VNNI("dpbusd") : "+x"(acc) : "x"(codes), "x"(a));
  return acc;
}
INLINE I dot4_small(I acc, I codes, I a) { return dot4(acc, codes, a); }

}  // namespace ingot::cpu::INGOT_ISA
