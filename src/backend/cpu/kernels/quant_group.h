// Multiplies a group of 32 codes by int8 activations: one template for all kinds (kernels.h), for codes of a panel and
// for unpacked codes. Sums of 32 products are exact integers. Each sum is multiplied by the scales of both sides and
// added to the float sum.
#pragma once
#include "backend/cpu/kernels/pair_products.h"
#include "backend/cpu/kernels/quant_panel.h"

namespace ingot::cpu::INGOT_ISA {

template <int kind>
INLINE I multiply(I acc, I codes, I a) {
  if constexpr (largest_code(Kind<kind>::k) < 128) return dot4_small(acc, codes, a);
  return dot4(acc, codes, a);
}

// Adds the products of one group of 32 to acc [M tokens, RV vectors of rows]. `a` is the group's record in the
// activation tile. codes(quad, v) returns four codes of each row of vector v; scale(field, part, v) the rows' scales
// (field 0) or minima (field 1).
template <int kind, int M, int RV, class Codes, class Scale>
INLINE void group_step(F (&acc)[M][RV], const uint8_t* a, Codes&& codes, Scale&& scale) {
  constexpr QuantKind k = Kind<kind>::k;
  constexpr int parts = Kind<kind>::layout.parts, n_quads = kGroup / 4 / parts;
  constexpr int n_pairs = quads_in_pairs(largest_code(k), n_quads);
  constexpr bool no_start = k.has_min && !(k.bits == 8 && kSignedCodes);  // codes as stored, without a zero point
  const uint8_t* a_scale = a + 4 * parts * M;
  const uint8_t* a_sum = a_scale + 4 * M;
  const uint8_t* bytes = a_sum + (k.has_min ? 4 * parts * M : 0);
#pragma GCC unroll 2
  for (int part = 0; part < parts; ++part) {
    I sums[M][RV];
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const I start = no_start ? I{} : all(load_as<int32_t>(a + (part * M + m) * 4));
#pragma GCC unroll 8
      for (int v = 0; v < RV; ++v) sums[m][v] = start;
    }
    if constexpr (kMultipliesByLane) {
      multiply_by_lane(sums, bytes, part * n_quads, n_quads, codes);
    } else if constexpr (n_pairs > 1) {
      multiply_in_pairs<n_pairs>(sums, bytes, part * n_quads, n_quads, codes);
    } else {
#pragma GCC unroll 8
      for (int i = 0; i < n_quads; ++i) {
        const int quad = part * n_quads + i;
        I code[RV];
#pragma GCC unroll 8
        for (int v = 0; v < RV; ++v) code[v] = codes(quad, v);
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) {
          const I x = all(load_as<int32_t>(bytes + (quad * M + m) * 4));
#pragma GCC unroll 8
          for (int v = 0; v < RV; ++v) sums[m][v] = multiply<kind>(sums[m][v], code[v], x);
        }
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < RV; ++v) {
      const F own = scale(0, part, v);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) acc[m][v] += to_float(sums[m][v]) * (own * all(load_as<float>(a_scale + m * 4)));
    }
  }
  if constexpr (k.has_min) {
#pragma GCC unroll 2
    for (int part = 0; part < parts; ++part) {
#pragma GCC unroll 8
      for (int v = 0; v < RV; ++v) {
        const F min = scale(1, part, v);
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) acc[m][v] += min * all(load_as<float>(a_sum + (part * M + m) * 4));
      }
    }
  }
}

// Adds the products of quads [first, first + n_quads), times the multiples of the rows, to sums. Codes are below 128.
template <int M, int RV, class Codes>
INLINE void add_multiples(I (&sums)[M][RV], const uint8_t* a, int first, int n_quads, Codes&& codes,
                          const I (&multiples)[RV]) {
  I totals[M][RV] = {};  // not used if a product of 16 bits multiplies and adds
  if constexpr (kMultipliesByLane) multiply_by_lane(totals, a, first, n_quads, codes);
#pragma GCC unroll 8
  for (int quad = first; quad < first + n_quads && !kMultipliesByLane; ++quad) {
    I code[RV];
#pragma GCC unroll 8
    for (int v = 0; v < RV; ++v) code[v] = codes(quad, v);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const I x = all(load_as<int32_t>(a + (quad * M + m) * 4));
#pragma GCC unroll 8
      for (int v = 0; v < RV; ++v)
        if constexpr (kAddsPairs)
          sums[m][v] = dot2_int16(sums[m][v], pairs_of(code[v], x), multiples[v]);
        else
          totals[m][v] = dot4_small(totals[m][v], code[v], x);
    }
  }
  if constexpr (!kAddsPairs)
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
      for (int v = 0; v < RV; ++v) sums[m][v] += totals[m][v] * (multiples[v] & 0xFFFF);
}

// As group_step, for Scales::kMultiples. The sums of both parts, times their multiples, are added as integers. They
// stay below 2^24, so the group has only one float sum. `scales` has the multiples of the first of RV vectors of rows.
template <int kind, int M, int RV, class Codes>
INLINE void multiples_step(F (&acc)[M][RV], const uint8_t* a, const uint8_t* scales, const F (&base)[RV],
                           Codes&& codes) {
  constexpr int parts = 2, n_quads = kGroup / 4 / parts;
  const uint8_t *a_scale = a + 4 * parts * M, *bytes = a_scale + 4 * M;
  I sums[M][RV];
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
    for (int v = 0; v < RV; ++v)
      sums[m][v] =
          dot2_int16(I{}, load_as<I>(scales + (parts * kPanelRows + v * W) * 4), all(load_as<int32_t>(a + 4 * m)));
#pragma GCC unroll 2
  for (int part = 0; part < parts; ++part) {
    I multiples[RV];
#pragma GCC unroll 8
    for (int v = 0; v < RV; ++v) multiples[v] = load_as<I>(scales + (part * kPanelRows + v * W) * 4);
    add_multiples(sums, bytes, part * n_quads, n_quads, codes, multiples);
  }
#pragma GCC unroll 8
  for (int v = 0; v < RV; ++v)
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) acc[m][v] += to_float(sums[m][v]) * (base[v] * all(load_as<float>(a_scale + m * 4)));
}

}  // namespace ingot::cpu::INGOT_ISA
