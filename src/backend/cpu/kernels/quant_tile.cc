// Quantized panels times int8 activations: one template for all kinds (kernels.h). Sums of 32 products are exact
// integers. Each sum is multiplied by the scales of both sides and added to the float sum.
#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/kernels/tables.h"

namespace ingot::cpu::INGOT_ISA {
namespace {

// Vectors of rows in one pass over the panel. The pass keeps tokens x vectors accumulators, integer and float, in
// registers.
constexpr int RV = W == 8 ? 1 : 2;
constexpr int kPasses = kPanelRows / (RV * W);

template <int kind>
struct Kind {
  static constexpr QuantKind k = kQuantKinds[kind];
  static constexpr BlockLayout layout = block_layout(k);
};

// The scale (or minimum) of rows [row, row + W) for one part of a group.
template <int kind>
INLINE F load_scale(const uint8_t* scales, int part, int row, F base) {
  const uint8_t* p = scales + (part * kPanelRows + row) * Kind<kind>::layout.scale_bytes;
  if constexpr (Kind<kind>::k.scales == Scales::kSuper) return load_s8((const int8_t*)p) * base;
  if constexpr (Kind<kind>::k.scales == Scales::kBF16) return load_bf16((const uint16_t*)p);
  return load_f16((const uint16_t*)p);
}

template <int kind>
INLINE I multiply(I acc, I codes, I a) {
  if constexpr (Kind<kind>::k.bits == 4 && !Kind<kind>::k.codebook) return dot4_small(acc, codes, a);
  return dot4(acc, codes, a);
}

// acc[m][v] += codes * activations, for n_quads groups of 4 elements, and rows from `row`. `codes` and `a` point at the
// first group.
template <int kind, int M, int n_quads>
INLINE void dot_quads(I (&acc)[M][RV], const uint8_t* codes, int row, const uint8_t* a, I book) {
  constexpr bool nibbles = Kind<kind>::k.bits == 4;
#pragma GCC unroll 8
  for (int quad = 0; quad < n_quads; quad += nibbles ? 2 : 1) {
    I low[RV], high[RV];
#pragma GCC unroll 8
    for (int v = 0; v < RV; ++v) {
      const I bytes = load_as<I>(codes + (quad / (nibbles ? 2 : 1) * kPanelRows + row + v * W) * 4);
      low[v] = nibbles ? bytes & 0x0F0F0F0F : bytes;
      high[v] = (I)((U)bytes >> 4) & 0x0F0F0F0F;
      if constexpr (Kind<kind>::k.codebook) {
        low[v] = lookup16(book, low[v]);
        high[v] = lookup16(book, high[v]);
      }
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const I x = all(load_as<int32_t>(a + (quad * M + m) * 4));
#pragma GCC unroll 8
      for (int v = 0; v < RV; ++v) acc[m][v] = multiply<kind>(acc[m][v], low[v], x);
    }
    if constexpr (nibbles) {
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        const I x = all(load_as<int32_t>(a + ((quad + 1) * M + m) * 4));
#pragma GCC unroll 8
        for (int v = 0; v < RV; ++v) acc[m][v] = multiply<kind>(acc[m][v], high[v], x);
      }
    }
  }
}

// One group of 32. `scales` and `mins` belong to the group; `a` is the group's record in the activation tile.
template <int kind, int M>
INLINE void group_step(F (&acc)[M][RV], const uint8_t* codes, const uint8_t* scales, const uint8_t* mins, int row,
                       const F (&base)[RV], const F (&base_min)[RV], const uint8_t* a, I book) {
  constexpr QuantKind k = Kind<kind>::k;
  constexpr int parts = Kind<kind>::layout.parts, n_quads = kGroup / 4 / parts;
  constexpr bool no_start = k.has_min && !(k.bits == 8 && kSignedCodes);  // codes as stored, without a zero point
  const uint8_t* a_scale = a + 4 * parts * M;
  const uint8_t* a_sum = a_scale + 4 * M;
  const uint8_t* bytes = a_sum + (k.has_min ? 4 * parts * M : 0);
  F total[M][RV];
#pragma GCC unroll 2
  for (int part = 0; part < parts; ++part) {
    I sums[M][RV];
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const I start = no_start ? I{} : all(load_as<int32_t>(a + (part * M + m) * 4));
#pragma GCC unroll 8
      for (int v = 0; v < RV; ++v) sums[m][v] = start;
    }
    dot_quads<kind, M, n_quads>(sums, codes + part * n_quads * kPanelRows * k.bits / 2, row,
                                bytes + part * n_quads * M * 4, book);
#pragma GCC unroll 8
    for (int v = 0; v < RV; ++v) {
      const F scale = load_scale<kind>(scales, part, row + v * W, base[v]);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        const F term = to_float(sums[m][v]) * scale;
        total[m][v] = part == 0 ? term : total[m][v] + term;
      }
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
    const F scale = all(load_as<float>(a_scale + m * 4));
#pragma GCC unroll 8
    for (int v = 0; v < RV; ++v) acc[m][v] += total[m][v] * scale;
  }
  if constexpr (k.has_min) {
#pragma GCC unroll 2
    for (int part = 0; part < parts; ++part) {
#pragma GCC unroll 8
      for (int v = 0; v < RV; ++v) {
        const F min = load_scale<kind>(mins, part, row + v * W, base_min[v]);
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) acc[m][v] += min * all(load_as<float>(a_sum + (part * M + m) * 4));
      }
    }
  }
}

template <int kind, int M>
void quant_tile(const uint8_t* panel, const uint8_t* act, int64_t n_in, const uint8_t* codebook, float* out) {
  constexpr QuantKind k = Kind<kind>::k;
  constexpr BlockLayout b = Kind<kind>::layout;
  constexpr int act_group_bytes = M * (kGroup + 4 + 4 * b.parts * (k.has_min ? 2 : 1));
  const int64_t n_blocks = n_in / (kGroup * b.n_groups);
  const I book = k.codebook ? repeat16(codebook) : I{};
  for (int pass = 0; pass < kPasses; ++pass) {
    const int row = pass * RV * W;
    const uint8_t* block = panel;
    const uint8_t* a = act;
    F acc[M][RV] = {};
    for (int64_t i = 0; i < n_blocks; ++i, block += b.bytes) {
      F base[RV] = {}, base_min[RV] = {};
      if constexpr (k.scales == Scales::kSuper) {
#pragma GCC unroll 8
        for (int v = 0; v < RV; ++v) {
          base[v] = load_f16((const uint16_t*)block + row + v * W);
          if constexpr (k.has_min) base_min[v] = load_f16((const uint16_t*)(block + b.base_min_at) + row + v * W);
        }
      }
#pragma GCC unroll 1
      for (int g = 0; g < b.n_groups; ++g, a += act_group_bytes) {
        if constexpr (M <= kPrefetchTokens)
          prefetch<b.bytes / b.n_groups>(block + g * (b.bytes / b.n_groups) + kPrefetchAhead);
        group_step<kind, M>(acc, block + b.codes_at + g * b.code_bytes, block + b.scales_at + g * b.scale_step,
                            block + b.mins_at + g * b.scale_step, row, base, base_min, a, book);
      }
    }
    for (int m = 0; m < M; ++m)
      for (int v = 0; v < RV; ++v) store(out + m * kPanelRows + row + v * W, acc[m][v]);
  }
}

}  // namespace

#define TILES_OF(kind) \
  { quant_tile<kind, 1>, quant_tile<kind, 2>, quant_tile<kind, 3>, quant_tile<kind, 4> TILES_5_6(kind) }
#if defined(__AVX512F__)
#define TILES_5_6(kind) , quant_tile<kind, 5>, quant_tile<kind, 6>
#else
#define TILES_5_6(kind)
#endif

const TileFn kQuantTiles[kQuantKindCount][kMaxTile] = {
    TILES_OF(0), TILES_OF(1), TILES_OF(2),  TILES_OF(3),  TILES_OF(4),  TILES_OF(5),  TILES_OF(6),  TILES_OF(7),
    TILES_OF(8), TILES_OF(9), TILES_OF(10), TILES_OF(11), TILES_OF(12), TILES_OF(13), TILES_OF(14), TILES_OF(15),
};

}  // namespace ingot::cpu::INGOT_ISA
