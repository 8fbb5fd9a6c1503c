// Products of many tokens with parts of panels. A part is unpacked into integers with f32 scales, in the first-level
// cache, and multiplied by all tokens before the next part. Three kinds of weights gain, the first two with integers of
// 16 bits:
// - F16 weights that are not bf16 numbers, and BF16 weights where there are no bf16 dot products. Otherwise they would
//   be multiplied in f32, at half the rate. They are rounded to 14 bits, an error of 2^-14 of the largest of 32.
// - Codes of 8 bits on AVX2, which multiplies bytes only if one of them has no sign. The integers are those of the
//   int8 products, and sums are added in the same order, so the results have the same bits.
// - Other codes on AVX2, which stay bytes: planes are combined, levels of a codebook looked up and scales converted
//   once, and not for each tile. The results have the same bits here too.
#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/panel_sums.h"
#include "backend/cpu/kernels/quant_group.h"
#include "backend/cpu/kernels/quant_part.h"
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/kernels/tables.h"

namespace ingot::cpu::INGOT_ISA {
namespace {

constexpr int RV = 2;                      // vectors of rows in one pass
constexpr int kPairs = kGroup / 2;

struct Part {
  PartScales scales;
  union {
    int32_t pairs[kPartGroups][kPairs][kPanelRows];      // two elements of k in 16 bits each
    int32_t quads[kPartGroups][kPairs / 2][kPanelRows];  // four codes
  };
};

// Adds the products of a part in 16 bits and m tokens to sums [m, 32 rows].
template <int M, bool has_min>
void int16_tile(const Part& part, int n_groups, const uint8_t* act, float* sums) {
  for (int row = 0; row < kPanelRows; row += RV * W) {
    F acc[M][RV];
    for (int m = 0; m < M; ++m)
      for (int v = 0; v < RV; ++v) acc[m][v] = load(sums + m * kPanelRows + row + v * W);
    const uint8_t* a = act;
#pragma GCC unroll 1
    for (int g = 0; g < n_groups; ++g) {
      const uint8_t *a_sum = a + 4 * M, *numbers = a_sum + (has_min ? 4 * M : 0);
      I totals[M][RV] = {};
#pragma GCC unroll 4
      for (int pair = 0; pair < kPairs; ++pair) {
        I code[RV];
#pragma GCC unroll 4
        for (int v = 0; v < RV; ++v) code[v] = load_as<I>(&part.pairs[g][pair][row + v * W]);
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) {
          const I x = all(load_as<int32_t>(numbers + (pair * M + m) * 4));
#pragma GCC unroll 4
          for (int v = 0; v < RV; ++v) totals[m][v] = dot2_int16(totals[m][v], code[v], x);
        }
      }
#pragma GCC unroll 4
      for (int v = 0; v < RV; ++v) {
        const F scale = load(&part.scales[0][g][0][row + v * W]);
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) acc[m][v] += to_float(totals[m][v]) * (scale * all(load_as<float>(a + m * 4)));
      }
      if constexpr (has_min) {
#pragma GCC unroll 4
        for (int v = 0; v < RV; ++v) {
          const F min = load(&part.scales[1][g][0][row + v * W]);
#pragma GCC unroll 16
          for (int m = 0; m < M; ++m) acc[m][v] += min * all(load_as<float>(a_sum + m * 4));
        }
      }
      a = numbers + kPairs * M * 4;
    }
    for (int m = 0; m < M; ++m)
      for (int v = 0; v < RV; ++v) store(sums + m * kPanelRows + row + v * W, acc[m][v]);
  }
}

// As int16_tile, for a part in bytes.
template <int kind, int M>
void byte_tile(const Part& part, int n_groups, const uint8_t* act, float* sums) {
  constexpr ActLayout layout{.has_min = Kind<kind>::k.has_min, .parts = Kind<kind>::layout.parts};
  for (int row = 0; row < kPanelRows; row += RV * W) {
    F acc[M][RV];
    for (int m = 0; m < M; ++m)
      for (int v = 0; v < RV; ++v) acc[m][v] = load(sums + m * kPanelRows + row + v * W);
#pragma GCC unroll 1
    for (int g = 0; g < n_groups; ++g)
      group_step<kind>(
          acc, act + g * M * act_token_bytes(layout, kGroup),
          [&](int quad, int v) __attribute__((always_inline)) { return load_as<I>(&part.quads[g][quad][row + v * W]); },
          [&](int field, int p, int v)
              __attribute__((always_inline)) { return load(&part.scales[field][g][p][row + v * W]); });
    for (int m = 0; m < M; ++m)
      for (int v = 0; v < RV; ++v) store(sums + m * kPanelRows + row + v * W, acc[m][v]);
  }
}

// ---- unpacking: groups [first, first + n) of a panel ----

typedef int16_t S __attribute__((vector_size(4 * W)));

INLINE I pair_of(I low, I high) { return (low & 0xFFFF) | high << 16; }

// Splits the four codes in each lane into pairs, and subtracts their zero.
[[maybe_unused]] INLINE void split(I codes, int zero, int32_t* first, int32_t* second) {
  const S bytes = (S)codes, offset = (int16_t)zero - S{};
  const I low = (I)(S)((S)(bytes << 8 >> 8) - offset), high = (I)(S)((bytes >> 8) - offset);
  const I pairs[2] = {pair_of(low, high), (I)((U)low >> 16) | (high & (int32_t)0xFFFF0000)};
  __builtin_memcpy(first, &pairs[0], sizeof(I));
  __builtin_memcpy(second, &pairs[1], sizeof(I));
}

template <int kind>
constexpr bool kNeedsInt16 = kSignedCodes && largest_code(kQuantKinds[kind]) >= 128;

template <int kind>
void unpack_quant(const MatmulJob& job, const uint8_t* panel, int64_t first, int n, Part& part) {
  unpack_part<kind, true>(job, panel, first, n, part.scales, [&](int g, int quad, int row, I codes) {
    if constexpr (kNeedsInt16<kind>) {
      split(codes, job.zero, &part.pairs[g][2 * quad][row], &part.pairs[g][2 * quad + 1][row]);
    } else {
      __builtin_memcpy(&part.quads[g][quad][row], &codes, sizeof(codes));
    }
  });
}

// Elements 2 * pair and 2 * pair + 1 of k.
template <Dense type>
INLINE void load_pair(const uint8_t* panel, int64_t pair, int row, F& low, F& high) {
  if constexpr (type == Dense::kF16) {
    low = load_f16((const uint16_t*)panel + 2 * pair * kPanelRows + row);
    high = load_f16((const uint16_t*)panel + (2 * pair + 1) * kPanelRows + row);
  } else {
    const I both = load_as<I>(panel + (pair * kPanelRows + row) * 4);
    low = (F)(both << 16);
    high = (F)(both & (int32_t)0xFFFF0000);
  }
}

template <Dense type>
void unpack_dense(const uint8_t* panel, int64_t first, int n, Part& part) {
  for (int g = 0; g < n; ++g) {
    const int64_t first_pair = (first + g) * kPairs;
    for (int row = 0; row < kPanelRows; row += W) {
      F low, high, top = {};
      for (int i = 0; i < kPairs; ++i) {
        load_pair<type>(panel, first_pair + i, row, low, high);
        top = larger_size(larger_size(abs(low), abs(high)), top);
      }
      store(&part.scales[0][g][0][row], top / (float)kInt16Weight);
      const F inverse = top > 1e-30f ? (float)kInt16Weight / top : F{};
      for (int i = 0; i < kPairs; ++i) {
        load_pair<type>(panel, first_pair + i, row, low, high);
        const I pair = pair_of(round_to_int(low * inverse), round_to_int(high * inverse));
        __builtin_memcpy(&part.pairs[g][i][row], &pair, sizeof(pair));
      }
    }
  }
}

template <int kind = 0>
void unpack(const MatmulJob& job, const uint8_t* panel, int64_t first, int n, Part& part) {
  if constexpr (kind < kQuantKindCount) {
    if (job.kind != kind) return unpack<kind + 1>(job, panel, first, n, part);
    if constexpr (kNeedsInt16<kind> || kAddsPairs) unpack_quant<kind>(job, panel, first, n, part);
  } else if (job.dense == Dense::kF16) {
    unpack_dense<Dense::kF16>(panel, first, n, part);
  } else {
    unpack_dense<Dense::kBF16>(panel, first, n, part);
  }
}

// ---- the loops around the tiles ----

using PartFn = void (*)(const Part& part, int n_groups, const uint8_t* act, float* sums);
struct PartRow {
  PartFn of[kInt16Tile];  // [m - 1]
};
template <bool has_min, int... m>
constexpr PartRow row_of(Lanes<m...>) {
  return {{int16_tile<m + 1, has_min>...}};
}
constexpr PartRow kInt16Tiles[] = {row_of<false>(LanesOf<kInt16Tile>()), row_of<true>(LanesOf<kInt16Tile>())};

// The first kind that has the same tiles as `kind`, once its codes are bytes and its scales f32.
constexpr int byte_tile_kind(int kind) {
  const auto alike = [](const QuantKind& a, const QuantKind& b) {
    const int parts = block_layout(a).parts, n_quads = kGroup / 4 / parts;
    return a.has_min == b.has_min && parts == block_layout(b).parts &&
           quads_in_pairs(largest_code(a), n_quads) == quads_in_pairs(largest_code(b), n_quads) &&
           (largest_code(a) < 128) == (largest_code(b) < 128);
  };
  int i = 0;
  while (!alike(kQuantKinds[i], kQuantKinds[kind])) ++i;
  return i;
}
template <int kind, int... m>
constexpr PartRow byte_row_of(Lanes<m...>) {
  if constexpr (kAddsPairs && !kNeedsInt16<kind> && gains_from_bytes(kQuantKinds[kind])) {
    return {{byte_tile<byte_tile_kind(kind), m + 1>...}};
  } else {
    return {};
  }
}
struct ByteTiles {
  PartRow of[kQuantKindCount];
};
template <int... kind>
constexpr ByteTiles byte_tiles_of(Lanes<kind...>) {
  return {{byte_row_of<kind>(LanesOf<kQuantTile>())...}};
}
constexpr ByteTiles kByteTiles = byte_tiles_of(LanesOf<kQuantKindCount>());

struct Scratch {
  Part part;
  PanelSums sums;
};
alignas(64) thread_local Scratch scratch;

// All of k, for the tokens of tiles [tile_begin, tile_end).
INLINE void multiply_panel(const MatmulJob& job, int64_t panel, int tile_begin_, int tile_end, Scratch& s) {
  const uint8_t* from = job.panels + panel * job.panel_bytes;
  const int first_token = tile_begin(job.tiling, tile_begin_);
  const int64_t n_groups = job.n_in / kGroup, group_bytes = job.act_token_bytes / n_groups;
  const bool has_min = job.kind >= 0 && kQuantKinds[job.kind].has_min;
  const PartFn* tiles = (job.unpacked == Unpacked::kBytes ? kByteTiles.of[job.kind] : kInt16Tiles[has_min]).of;
  memset(s.sums, 0, (size_t)(tile_begin(job.tiling, tile_end) - first_token) * sizeof(s.sums[0]));
  for (int64_t g = 0; g < n_groups; g += kPartGroups) {
    const int n = (int)(n_groups - g < kPartGroups ? n_groups - g : kPartGroups);
    unpack(job, from, g, n, s.part);
    for (int tile = tile_begin_; tile < tile_end; ++tile) {
      const int token = tile_begin(job.tiling, tile), m = tile_begin(job.tiling, tile + 1) - token;
      const uint8_t* act = job.act + token * job.act_token_bytes + g * group_bytes * m;
      tiles[m - 1](s.part, n, act, s.sums[token - first_token]);
    }
  }
}

}  // namespace

void matmul_in_parts(const MatmulJob& job, const PanelRange& range) {
  for_each_panel(job, range, scratch.sums,
                 [&](int64_t panel, int first, int last) { multiply_panel(job, panel, first, last, scratch); });
}

}  // namespace ingot::cpu::INGOT_ISA
