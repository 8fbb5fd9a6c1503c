// NEON, with dot products and i8mm if the compiler may use them: one instruction multiplies by a lane of a vector, and
// one (i8mm) multiplies two rows by two tokens, eight elements of k each.
#pragma once
#include <arm_neon.h>

namespace ingot::cpu::INGOT_ISA {
constexpr int W = 4;
}
#include "backend/cpu/kernels/isa/plain.h"

namespace ingot::cpu::INGOT_ISA {

constexpr int kQuantTile = 8, kDenseTile = 6, kInt16Tile = 0;  // see tables.h; vectors are short, but there are 32
constexpr bool kSignedCodes = true, kAddsPairs = false;

using plain::dot2_int16;
using plain::high_bytes;
using plain::largest;
using plain::load_widened;
using plain::store_s8;
using plain::sum;
using plain::widen;

INLINE F load_f16(const uint16_t* p) { return (F)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
INLINE void store_f16(uint16_t* p, F v) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)v))); }
INLINE I load_bytes(const uint8_t* p) {
  int8_t eight[8] = {};
  __builtin_memcpy(eight, p, W);
  return (I)vmovl_s16(vget_low_s16(vmovl_s8(vld1_s8(eight))));
}
INLINE Sums dot_words(Sums acc, Words a, Words b) {
  int32x4_t sums[2];
  int16x8_t x[2], y[2];
  __builtin_memcpy(sums, &acc, sizeof(acc));
  __builtin_memcpy(x, &a, sizeof(a));
  __builtin_memcpy(y, &b, sizeof(b));
  for (int i = 0; i < 2; ++i)
    sums[i] = vmlal_high_s16(vmlal_s16(sums[i], vget_low_s16(x[i]), vget_low_s16(y[i])), x[i], y[i]);
  return load_as<Sums>(sums);
}
INLINE I lookup16(I table, I codes) { return (I)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)codes); }

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
constexpr bool kBf16Dot = true;
INLINE F dot2_bf16(F acc, I a, I b) { return (F)vbfdotq_f32((float32x4_t)acc, (bfloat16x8_t)a, (bfloat16x8_t)b); }
#else
constexpr bool kBf16Dot = false;
using plain::dot2_bf16;
#endif

#if defined(__ARM_FEATURE_MATMUL_INT8)
constexpr int kActQuads = 2;  // quads of a token that are stored together

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
#else
constexpr int kActQuads = 1;
#endif

#if defined(__ARM_FEATURE_DOTPROD)
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
#else
constexpr bool kMultipliesByLane = false;
using plain::dot4;
using plain::dot4_small;
#endif

}  // namespace ingot::cpu::INGOT_ISA
