// NEON with dot products, i8mm and bf16. One instruction (i8mm) multiplies two rows by two tokens, eight elements of k
// each.
#pragma once
#include "backend/cpu/kernels/isa/neon_base.h"

namespace ingot::cpu::INGOT_ISA {

constexpr int kActQuads = 2;  // quads of a token that are stored together
constexpr bool kBf16Dot = true;

INLINE F dot2_bf16(F acc, I a, I b) { return (F)vbfdotq_f32((float32x4_t)acc, (bfloat16x8_t)a, (bfloat16x8_t)b); }

// Multiplies the codes of two quads. Codes of two rows are joined to a vector, and so are two tokens; the last token
// of an odd number is joined with zeros.
template <int M, int RV, class Codes>
INLINE void multiply_two_by_two(I (&sums)[M][RV], const uint8_t* a, int first, int n_quads, Codes&& codes) {
  constexpr int P = (M + 1) / 2;
  int32x4_t top[P][RV], bottom[P][RV];  // [2 rows, 2 tokens]: rows 0 and 1 of a vector, rows 2 and 3
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 8
    for (int v = 0; v < RV; ++v) {
      const int32x4_t second = 2 * p + 1 < M ? (int32x4_t)sums[2 * p + 1 < M ? 2 * p + 1 : 0][v] : int32x4_t{};
      top[p][v] = vzip1q_s32((int32x4_t)sums[2 * p][v], second);
      bottom[p][v] = vzip2q_s32((int32x4_t)sums[2 * p][v], second);
    }
  }
#pragma GCC unroll 4
  for (int quad = first; quad < first + n_quads; quad += 2) {
    int8x16_t c_top[RV], c_bottom[RV];  // [2 rows, 8 of k]
#pragma GCC unroll 8
    for (int v = 0; v < RV; ++v) {
      const int32x4_t even = (int32x4_t)codes(quad, v), odd = (int32x4_t)codes(quad + 1, v);
      c_top[v] = (int8x16_t)vzip1q_s32(even, odd);
      c_bottom[v] = (int8x16_t)vzip2q_s32(even, odd);
    }
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      const int8_t* two = (const int8_t*)a + quad_offset(quad, 2 * p, M, kActQuads);
      const int8x16_t x = 2 * p + 1 < M ? vld1q_s8(two) : vcombine_s8(vld1_s8(two), int8x8_t{});
#pragma GCC unroll 8
      for (int v = 0; v < RV; ++v) {
        top[p][v] = vmmlaq_s32(top[p][v], c_top[v], x);
        bottom[p][v] = vmmlaq_s32(bottom[p][v], c_bottom[v], x);
      }
    }
  }
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 8
    for (int v = 0; v < RV; ++v) {
      sums[2 * p][v] = (I)vuzp1q_s32(top[p][v], bottom[p][v]);
      if (2 * p + 1 < M) sums[2 * p + 1 < M ? 2 * p + 1 : 0][v] = (I)vuzp2q_s32(top[p][v], bottom[p][v]);
    }
  }
}

}  // namespace ingot::cpu::INGOT_ISA
#include "backend/cpu/kernels/isa/neon_lanes.h"
