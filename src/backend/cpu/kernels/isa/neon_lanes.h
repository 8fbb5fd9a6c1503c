// Dot products of NEON: one instruction multiplies by a lane of a vector. A set includes this file after kActQuads. If
// kActQuads is 2, the set has multiply_two_by_two, which takes the same arguments as multiply_by_lane.
#pragma once
#include "backend/cpu/kernels/isa/neon_base.h"

namespace ingot::cpu::INGOT_ISA {

constexpr bool kMultipliesByLane = true;

INLINE I dot4(I acc, I codes, I a) { return (I)vdotq_s32((int32x4_t)acc, (int8x16_t)codes, (int8x16_t)a); }
INLINE I dot4_small(I acc, I codes, I a) { return dot4(acc, codes, a); }

// Multiplies by the four bytes in one lane of `tokens`; the lane is an immediate of the instruction.
INLINE I dot4_lane(I acc, I codes, I tokens, int lane) {
  const int32x4_t sums = (int32x4_t)acc;
  const int8x16_t c = (int8x16_t)codes, x = (int8x16_t)tokens;
  switch (lane) {
    case 0: return (I)vdotq_laneq_s32(sums, c, x, 0);
    case 1: return (I)vdotq_laneq_s32(sums, c, x, 1);
    case 2: return (I)vdotq_laneq_s32(sums, c, x, 2);
    default: return (I)vdotq_laneq_s32(sums, c, x, 3);
  }
}

// Adds to sums [M tokens, RV vectors of rows] the products of quads [first, first + n_quads). `codes(quad, v)` returns
// four codes of each row of vector v; `a` has the bytes of the group's activations.
template <int M, int RV, class Codes>
INLINE void multiply_by_lane(I (&sums)[M][RV], const uint8_t* a, int first, int n_quads, Codes&& codes) {
  // For one token, half of each instruction would be wasted.
  if constexpr (kActQuads == 2 && M > 1) return multiply_two_by_two(sums, a, first, n_quads, codes);
#pragma GCC unroll 8
  for (int quad = first; quad < first + n_quads; ++quad) {
    I code[RV];
#pragma GCC unroll 8
    for (int v = 0; v < RV; ++v) code[v] = codes(quad, v);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const int at = quad * M + m;  // words from the start of the group, which is a multiple of a vector long
#pragma GCC unroll 8
      for (int v = 0; v < RV; ++v) sums[m][v] = dot4_lane(sums[m][v], code[v], load_as<I>(a + at / 4 * 16), at % 4);
    }
  }
}

}  // namespace ingot::cpu::INGOT_ISA
#include "backend/cpu/kernels/isa/plain_group.h"
