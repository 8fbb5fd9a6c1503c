// Products of many tokens and quantized weights on a matrix unit that multiplies bf16 (Kernels::block_runs). Parts of
// panels are unpacked to bf16 in the second-level cache, and multiplied by all tokens before the next parts. A weight
// is rounded to 8 bits, an error of 2^-9 of the weight; activations have the same error, less than as int8.
#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/quant_panel.h"
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/kernels/tables.h"

namespace ingot::cpu::INGOT_ISA {
namespace {

// A tile of a part, at most 32 KiB, stays in the first-level cache; weights and sums, 768 KiB, in the second-level one.
constexpr int64_t kPartGroups = 16;                    // groups of 32 in a part of k
constexpr int kPanels = kPanelsUnpacked, kTiles = 16;  // at a time
constexpr int kPairs = kGroup / 2;
struct Scratch {
  uint32_t weights[kPanels][kPartGroups * kPairs * kPanelRows];  // bf16 [k / 2, 32 rows, 2]
  float sums[kTiles][kPanels][kMaxTile * kPanelRows];            // [tokens, 32 rows]
};
alignas(64) thread_local Scratch scratch;

// A code plus kAdded.
template <int kind>
constexpr int kAdded = largest_code(Kind<kind>::k) < 128 ? 128 : 0;
template <int kind, int byte>
INLINE F code_of(I codes) {
  if constexpr (kAdded<kind> == 128) return code_plus_128<byte>(codes);
  if constexpr (byte == 3) return to_float((I)((U)codes >> 24));
  return to_float((codes >> (8 * byte)) & 255);
}

// Groups [first, first + n) of a panel.
template <int kind>
void unpack_groups(const MatmulJob& job, const uint8_t* panel, int64_t first, int64_t n, uint32_t* out) {
  constexpr BlockLayout b = Kind<kind>::layout;
  constexpr int n_quads = kGroup / 4 / b.parts;  // of a part
  const I book = Kind<kind>::k.span > 0 ? repeat16(job.codebook) : I{};
  const F zero = all((float)(job.zero + kAdded<kind>));
  F bases[kPanelRows / W][2][1] = {};  // of the super-block: for scales and minima
  for (int64_t g = 0; g < n; ++g) {
    const uint8_t* block = panel + (first + g) / b.n_groups * b.bytes;
    const uint8_t* record = block + b.head_bytes + (first + g) % b.n_groups * b.record_bytes;
    const uint8_t* scales = b.shared ? block : record;
    prefetch<b.record_bytes>(record + kPrefetchAhead);
    uint32_t* to = out + g * kPairs * kPanelRows;
    for (int row = 0; row < kPanelRows; row += W) {
      F (&base)[2][1] = bases[row / W];
      if (g == 0 || (first + g) % b.n_groups == 0) {
        load_base<kind>(base[0], block, 0, row);
        if constexpr (Kind<kind>::k.has_min) load_base<kind>(base[1], block, 1, row);
      }
      F part_scales[b.parts], starts[b.parts];
#pragma GCC unroll 2
      for (int part = 0; part < b.parts; ++part) {
        part_scales[part] = with_one_nan(load_scale<kind>(scales, 0, part, row, base[0][0]));
        starts[part] = -zero * part_scales[part];
        if constexpr (Kind<kind>::k.has_min)
          starts[part] = with_one_nan(starts[part] + load_scale<kind>(scales, 1, part, row, base[1][0]));
      }
#pragma GCC unroll 8
      for (int quad = 0; quad < kGroup / 4; ++quad) {
        const F scale = part_scales[quad / n_quads], start = starts[quad / n_quads];
        const I codes = load_codes<kind>(record + b.codes_at, quad, row, book);
        const auto value = [&](F code) { return code * scale + start; };
        uint32_t* pair = to + 2 * quad * kPanelRows + row;
        store_pairs(pair, value(code_of<kind, 0>(codes)), value(code_of<kind, 1>(codes)));
        store_pairs(pair + kPanelRows, value(code_of<kind, 2>(codes)), value(code_of<kind, 3>(codes)));
      }
    }
  }
}

template <int kind = 0>
void unpack_panel(const MatmulJob& job, const uint8_t* panel, int64_t first, int64_t n, uint32_t* out) {
  if constexpr (kind < kQuantKindCount) {
    if (job.kind != kind) return unpack_panel<kind + 1>(job, panel, first, n, out);
    unpack_groups<kind>(job, panel, first, n, out);
  }
}

void unpack(const MatmulJob& job, const uint8_t* panel, int64_t first, int64_t n, uint32_t* out) {
  if (job.file_blocks == nullptr) return unpack_panel(job, panel, first, n, out);
  alignas(64) uint8_t block[kMaxByteBlock];
  const int64_t block_bytes = job.panel_bytes / (job.n_in / kGroup / kSuperGroups);
  for (int64_t g = 0; g < n; g += kSuperGroups) {
    job.file_blocks->unpack_rows(panel + (first + g) / kSuperGroups * block_bytes, block);
    unpack_panel(job, block, 0, kSuperGroups, out + g * kPairs * kPanelRows);
  }
}

}  // namespace

void pack_blocks(const float* x, int64_t stride, int m_count, int64_t n_in, uint8_t* tile) {
  for (int m = 0; m < m_count; ++m)
    for (int64_t block = 0; block < n_in / kGroup; ++block) {
      const float* from = x + m * stride + block * kGroup;
      store_bf16(tile + (block * m_count + m) * kGroup * 2, load(from), load(from + W));
    }
}

// In turns for each part of k: some panels are unpacked, then each tile of tokens is multiplied by all of them. So a
// tile is read from afar once for kPanels panels, and the sums wait in the second-level cache.
void matmul_in_bf16(const MatmulJob& job, const PanelRange& r) {
  const int64_t n_groups = job.n_in / kGroup;
  const auto first_token = [&](int tile) { return tile_begin(job.tiling, tile); };
  const auto act_of = [&](int tile, int64_t group) {
    const int token = first_token(tile), m = first_token(tile + 1) - token;
    return job.act + token * job.act_token_bytes + group * kGroup * m * 2;
  };
  for (int64_t panel = r.panel_begin; panel < r.panel_end; panel += kPanels) {
    const int n_panels = (int)(r.panel_end - panel < kPanels ? r.panel_end - panel : kPanels);
    for (int begin = r.tile_begin; begin < r.tile_end; begin += kTiles) {
      const int end = begin + kTiles < r.tile_end ? begin + kTiles : r.tile_end;
      for (int64_t group = 0; group < n_groups; group += kPartGroups) {
        const int64_t n = n_groups - group < kPartGroups ? n_groups - group : kPartGroups;
        const bool is_last = group + n == n_groups;
        for (int i = 0; i < n_panels; ++i)
          unpack(job, job.panels + (panel + i) * job.panel_bytes, group, n, scratch.weights[i]);
        for (int tile = begin; tile < end; ++tile) {
          const int token = first_token(tile), m = first_token(tile + 1) - token;
          float(*sums)[kMaxTile * kPanelRows] = scratch.sums[tile - begin];
          const uint8_t* later = tile + 1 < end ? act_of(tile + 1, group) : act_of(begin, is_last ? 0 : group + n);
          job.kernels->block_runs->of[m - 1]({.panels = (const uint8_t*)scratch.weights,
                                              .panel_bytes = sizeof(scratch.weights[0]),
                                              .n_panels = n_panels,
                                              .act = act_of(tile, group),
                                              .later = later,
                                              .n_blocks = n,
                                              .adds = group > 0,
                                              .sums = sums[0]});
          for (int i = 0; i < n_panels && is_last; ++i) finish(job, sums[i], panel + i, token, m);
        }
      }
    }
  }
}

}  // namespace ingot::cpu::INGOT_ISA
