// Quantized panels times int8 activations: one template for all kinds (kernels.h). Sums of 32 products are exact
// integers. Each sum is multiplied by the scales of both sides and added to the float sum.
#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/pair_products.h"
#include "backend/cpu/kernels/quant_panel.h"
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/kernels/tables.h"

namespace ingot::cpu::INGOT_ISA {
namespace {

// Vectors of rows in one pass over the panel. The pass keeps tokens x vectors accumulators, integer and float, in
// registers. One pass is best for few tokens, since it reads memory in order.
template <int M>
constexpr int kRowVectors = W == 16 ? 2 : M == 1 ? 4 : W == 8 || M < 4 ? 2 : 1;

template <int kind>
INLINE I multiply(I acc, I codes, I a) {
  if constexpr (largest_code(Kind<kind>::k) < 128) return dot4_small(acc, codes, a);
  return dot4(acc, codes, a);
}

// One group of 32. `scales` belong to the group; `a` is the group's record in the activation tile.
template <int kind, int M, int RV>
INLINE void group_step(F (&acc)[M][RV], const uint8_t* codes, const uint8_t* scales, int row, const F (&base)[RV],
                       const F (&base_min)[RV], const uint8_t* a, I book) {
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
      multiply_by_lane(sums, bytes, part * n_quads, n_quads, [&](int quad, int v) __attribute__((always_inline)) {
        return load_codes<kind>(codes, quad, row + v * W, book);
      });
    } else if constexpr (n_pairs > 1) {
      multiply_in_pairs<n_pairs>(
          sums, bytes, part * n_quads, n_quads, [&](int quad, int v) __attribute__((always_inline)) {
            return load_codes<kind>(codes, quad, row + v * W, book);
          });
    } else {
#pragma GCC unroll 8
      for (int i = 0; i < n_quads; ++i) {
        const int quad = part * n_quads + i;
        I code[RV];
#pragma GCC unroll 8
        for (int v = 0; v < RV; ++v) code[v] = load_codes<kind>(codes, quad, row + v * W, book);
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
      const F scale = load_scale<kind>(scales, 0, part, row + v * W, base[v]);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m)
        acc[m][v] += to_float(sums[m][v]) * (scale * all(load_as<float>(a_scale + m * 4)));
    }
  }
  if constexpr (k.has_min) {
#pragma GCC unroll 2
    for (int part = 0; part < parts; ++part) {
#pragma GCC unroll 8
      for (int v = 0; v < RV; ++v) {
        const F min = load_scale<kind>(scales, 1, part, row + v * W, base_min[v]);
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) acc[m][v] += min * all(load_as<float>(a_sum + (part * M + m) * 4));
      }
    }
  }
}

// Rows [row, row + RV * W) of a panel.
template <int kind, int M, int RV>
INLINE void quant_pass(const uint8_t* panel, const uint8_t* act, int64_t n_in, I book, int row, float* out) {
  constexpr QuantKind k = Kind<kind>::k;
  constexpr BlockLayout b = Kind<kind>::layout;
  constexpr int act_group_bytes = M * (kGroup + 4 + 4 * b.parts * (k.has_min ? 2 : 1));
  constexpr bool near = k.bits == 4;  // measured on Zen 4: near is 10 % faster for 4 bits, and 15 % slower for others
  const int64_t n_blocks = n_in / (kGroup * b.n_groups);
  F acc[M][RV] = {};
  for (int64_t i = 0; i < n_blocks; ++i, panel += b.bytes) {
    F base[RV] = {}, base_min[RV] = {};
    load_base<kind>(base, panel, 0, row);
    if constexpr (k.has_min) load_base<kind>(base_min, panel, 1, row);
    if constexpr (M <= kPrefetchTokens) prefetch<b.head_bytes, near>(panel + kPrefetchAhead);
#pragma GCC unroll 1
    for (int g = 0; g < b.n_groups; ++g, act += act_group_bytes) {
      const uint8_t* record = panel + b.head_bytes + g * b.record_bytes;
      if constexpr (M <= kPrefetchTokens) prefetch<b.record_bytes, near>(record + kPrefetchAhead);
      group_step<kind, M>(acc, record + b.codes_at, b.shared ? panel : record, row, base, base_min, act, book);
    }
  }
  for (int m = 0; m < M; ++m)
    for (int v = 0; v < RV; ++v) store(out + m * kPanelRows + row + v * W, acc[m][v]);
}

template <int kind, int M>
void quant_tile(const uint8_t* panel, const uint8_t* act, int64_t n_in, const uint8_t* codebook, float* out) {
  constexpr int RV = kRowVectors<M>;
  const I book = Kind<kind>::k.span > 0 ? repeat16(codebook) : I{};
  for (int row = 0; row < kPanelRows; row += RV * W) quant_pass<kind, M, RV>(panel, act, n_in, book, row, out);
}

template <int kind, int... m>
constexpr TileRow row_of(Lanes<m...>) {
  return {{quant_tile<kind, m + 1>...}};
}
template <int... kind>
constexpr QuantTiles tiles_of(Lanes<kind...>) {
  return {{row_of<kind>(LanesOf<kQuantTile>())...}};
}

}  // namespace

const QuantTiles kQuantTiles = tiles_of(LanesOf<kQuantKindCount>());

}  // namespace ingot::cpu::INGOT_ISA
