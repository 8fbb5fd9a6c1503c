// Reads codes, scales and minima of quantized panels (kernels.h), for a vector of rows at a time.
#pragma once
#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/simd.h"

namespace ingot::cpu::INGOT_ISA {

template <int kind>
struct Kind {
  static constexpr QuantKind k = kQuantKinds[kind];
  static constexpr BlockLayout layout = block_layout(k);
};

// The f16 of rows [row, row + W) that lies in the scales of a super-block (Scales::kSuperSixBits), divided by 4.
template <int kind>
INLINE F gather_base(const uint8_t* block, int row) {
  H bits = {};
#pragma GCC unroll 8
  for (int g = 0; g < kSuperGroups; ++g)
    bits |= (load_widened(block + g * Kind<kind>::layout.record_bytes + row) & 3) << (2 * g);
  return f16_lanes(bits) * 0.25f;
}

// The factors of a super-block's scales or minima. Other kinds do not use them.
template <int kind, int RV>
INLINE void load_base(F (&base)[RV], const uint8_t* head, int field, int row) {
  if constexpr (Kind<kind>::k.scales == Scales::kSuperSixBits) {
#pragma GCC unroll 8
    for (int v = 0; v < RV; ++v) base[v] = gather_base<kind>(head, row + v * W);
  } else if constexpr (Kind<kind>::layout.super) {
#pragma GCC unroll 8
    for (int v = 0; v < RV; ++v) base[v] = load_f16((const uint16_t*)head + field * kPanelRows + row + v * W);
  }
}

// The scales (field 0) or minima (field 1) of rows [row, row + W) for one part of a group.
template <int kind>
INLINE F load_scale(const uint8_t* scales, int field, int part, int row, F base) {
  constexpr Scales type = Kind<kind>::k.scales;
  const uint8_t* p = scales + field * Kind<kind>::layout.mins_at +
                     (part * kPanelRows + row) * Kind<kind>::layout.scale_bytes;
  if constexpr (type == Scales::kSuper) return load_s8((const int8_t*)p) * base;
  if constexpr (type == Scales::kSuperSixBits) return to_float(part == 0 ? load_bytes(p) & ~3 : load_bytes(p)) * base;
  if constexpr (type == Scales::kSuperNibbles) return to_float((load_bytes(p) >> (4 * field)) & 15) * base;
  if constexpr (type == Scales::kMultiples) return to_float(load_as<I>(p) & 0xFFFF) * base;
  if constexpr (type == Scales::kE8M0) return load_e8m0(p);
  if constexpr (type == Scales::kE4M3) return load_ue4m3(p);
  return load_f16((const uint16_t*)p);
}

// `bits` bits of the codes of 4 elements from rows [row, row + W), shifted left by `up`.
template <int bits>
INLINE I load_plane(const uint8_t* plane, int quad, int row, int up) {
  constexpr int quads = 8 / bits;  // in a word
  const U words = load_as<U>(plane + (quad / quads * kPanelRows + row) * 4);
  if constexpr (bits == 8) return (I)words;
  const int down = quad % quads * bits - up;
  return (I)(down >= 0 ? words >> down : words << -down) & (0x01010101 * (((1 << bits) - 1) << up));
}

template <int kind>
INLINE I load_codes(const uint8_t* codes, int quad, int row, I book) {
  constexpr Planes planes = planes_of(Kind<kind>::k.bits);
  I result = load_plane<planes.low>(codes, quad, row, 0);
  if constexpr (planes.high > 0)
    result |= load_plane<planes.high>(codes + Kind<kind>::layout.high_at, quad, row, planes.low);
  if constexpr (Kind<kind>::k.span > 0) result = lookup16(book, result);
  return result;
}

}  // namespace ingot::cpu::INGOT_ISA
