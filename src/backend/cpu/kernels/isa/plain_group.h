// Plain C++ bodies of the functions that one_group.h needs, and of four_words. A set includes this file after its own
// dot4_small.
#pragma once
#include "backend/cpu/kernels/isa/plain.h"

namespace ingot::cpu::INGOT_ISA {

INLINE Bytes signs_of(uint32_t bits) { return mask_of(bits); }
INLINE Bytes with_signs_of(Bytes v, Bytes mask) { return (v ^ mask) - mask; }
INLINE Sums dot_scaled(Bytes codes, Bytes numbers, Sums factors) {
  I sums[8 / W], c[8 / W], a[8 / W];
  __builtin_memcpy(c, &codes, sizeof(codes));
  __builtin_memcpy(a, &numbers, sizeof(numbers));
  for (int i = 0; i < 8 / W; ++i) sums[i] = dot4_small(I{}, c[i], a[i]);
  return load_as<Sums>(sums) * factors;
}
INLINE Sums pair_of_bytes(const uint8_t* bytes, int i) {
  const int32_t a = bytes[2 * i], b = bytes[2 * i + 1];
  return Sums{a, a, a, a, b, b, b, b};
}
INLINE Sums twice_in_lanes(uint32_t v) { return Sums{} + (int32_t)(v & 0xFFFF); }
INLINE Half four_words(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const uint32_t words[] = {a, b, c, d};
  return load_as<Half>(words);
}

}  // namespace ingot::cpu::INGOT_ISA
#include "backend/cpu/kernels/isa/one_group.h"
