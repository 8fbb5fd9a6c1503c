// What all sets of NEON have.
#pragma once
#include <arm_neon.h>

namespace ingot::cpu::INGOT_ISA {
constexpr int W = 4;
}
#include "backend/cpu/kernels/isa/plain.h"

namespace ingot::cpu::INGOT_ISA {

constexpr int kQuantTile = 8, kDenseTile = 6, kInt16Tile = 0;  // see tables.h; vectors are short, but there are 32
constexpr bool kSignedCodes = true, kAddsPairs = false, kBf16Blocks = false;

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

}  // namespace ingot::cpu::INGOT_ISA
