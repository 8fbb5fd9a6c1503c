// Quantized panels times int8 activations. Codes are taken from the panel for each tile of tokens.
#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/quant_group.h"
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/kernels/tables.h"

namespace ingot::cpu::INGOT_ISA {
namespace {

// Vectors of rows in one pass over the panel. The pass keeps tokens x vectors accumulators, integer and float, in
// registers. One pass is best for few tokens, since it reads memory in order.
template <int M>
constexpr int kRowVectors = W == 16 ? 2 : M == 1 ? 4 : W == 8 || M < 4 ? 2 : 1;

// Rows [row, row + RV * W) of a panel.
template <int kind, int M, int RV>
INLINE void quant_pass(const uint8_t* panel, const uint8_t* act, int64_t n_in, I book, int row, float* out) {
  constexpr QuantKind k = Kind<kind>::k;
  constexpr BlockLayout b = Kind<kind>::layout;
  constexpr bool prefetches = M <= kPrefetchTokens && !is_unpacked(k);  // unpacked blocks are in the first-level cache
  constexpr int act_group_bytes = M * (kGroup + 4 + 4 * b.parts * (k.has_min ? 2 : 1));
  constexpr bool near = k.bits == 4;  // on Zen 4, near alone is 10 % faster for 4 bits, 15 % slower for others
  const int64_t n_blocks = n_in / (kGroup * b.n_groups);
  F acc[M][RV] = {};
  for (int64_t i = 0; i < n_blocks; ++i, panel += b.bytes) {
    F base[RV] = {}, base_min[RV] = {};
    load_base<kind>(base, panel, 0, row);
    if constexpr (k.has_min) load_base<kind>(base_min, panel, 1, row);
    if constexpr (prefetches) prefetch<b.head_bytes, near>(panel + kPrefetchAhead);
#pragma GCC unroll 1
    for (int g = 0; g < b.n_groups; ++g, act += act_group_bytes) {
      const uint8_t* record = panel + b.head_bytes + g * b.record_bytes;
      if constexpr (prefetches) prefetch<b.record_bytes, near>(record + kPrefetchAhead);
      const uint8_t* scales = b.shared ? panel : record;
      if constexpr (k.scales == Scales::kMultiples) {
        multiples_step<kind>(
            acc, act, scales + row * b.scale_bytes, base, [&](int quad, int v) __attribute__((always_inline)) {
              return load_codes<kind>(record + b.codes_at, quad, row + v * W, book);
            });
      } else {
        group_step<kind>(
            acc, act,
            [&](int quad, int v) __attribute__((always_inline)) {
              return load_codes<kind>(record + b.codes_at, quad, row + v * W, book);
            },
            [&](int field, int part, int v) __attribute__((always_inline)) {
              return load_scale<kind>(scales, field, part, row + v * W, field == 0 ? base[v] : base_min[v]);
            });
      }
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
