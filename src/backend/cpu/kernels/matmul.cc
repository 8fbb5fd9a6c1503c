// The code around the tiles: packs activations, loops over panels and tiles, and writes a tile's result to y.
#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/activation.h"
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/kernels/tables.h"

namespace ingot::cpu::INGOT_ISA {
namespace {

constexpr int GV = kGroup / W;  // vectors in a group

// Like pack_group, but packs integers of 16 bits.
INLINE void pack_group_int16(const float* x, int m, int m_count, const ActLayout& layout, uint8_t* out) {
  F v[GV], top = {};
  for (int i = 0; i < GV; ++i) {
    v[i] = load(x + i * W);
    top = larger_size(abs(v[i]), top);
  }
  const float amax = largest_size(top), limit = (float)layout.int16_limit;
  const float inverse = amax > 1e-30f ? limit / amax : 0.0f, scale = amax / limit;
  I total = {};
  int16_t numbers[kGroup];
  for (int i = 0; i < GV; ++i) {
    const I q = round_to_int(v[i] * inverse);
    total += q;
    for (int j = 0; j < W; ++j) numbers[i * W + j] = (int16_t)q[j];
  }
  __builtin_memcpy(out + 4 * m, &scale, 4);
  const float scaled = scale * (float)sum(total);
  if (layout.has_min) __builtin_memcpy(out + 4 * (m_count + m), &scaled, 4);
  uint8_t* pairs = out + 4 * m_count * (layout.has_min ? 2 : 1);
  for (int pair = 0; pair < kGroup / 2; ++pair)
    __builtin_memcpy(pairs + 4 * (pair * m_count + m), numbers + 2 * pair, 4);
}

// Packs one token's group of 32 into the record at `out`, in a tile of m_count tokens.
INLINE void pack_group(const float* x, int m, int m_count, const ActLayout& layout, uint8_t* out) {
  F v[GV], top = {};
  for (int i = 0; i < GV; ++i) {
    v[i] = load(x + i * W);
    top = max(abs(v[i]), top);
  }
  const float largest_abs = largest(top);
  const float inverse = largest_abs > 1e-30f ? 127.0f / largest_abs : 0.0f;
  const float scale = largest_abs / 127.0f;
  int8_t bytes[kGroup];
  I totals[2] = {};
  for (int i = 0; i < GV; ++i) {
    const I q = round_to_int(v[i] * inverse);
    store_s8(bytes + i * W, q);
    totals[layout.parts == 2 && i >= GV / 2] += q;
  }
  uint8_t* scales = out + 4 * layout.parts * m_count;
  uint8_t* sums = scales + 4 * m_count;
  uint8_t* codes = sums + (layout.has_min ? 4 * layout.parts * m_count : 0);
  __builtin_memcpy(scales + 4 * m, &scale, 4);
  for (int part = 0; part < layout.parts; ++part) {
    const int32_t total = sum(totals[part]), start = -layout.zero * total;
    __builtin_memcpy(out + 4 * (part * m_count + m), &start, 4);
    const float scaled = scale * (float)total;
    if (layout.has_min) __builtin_memcpy(sums + 4 * (part * m_count + m), &scaled, 4);
  }
  if (layout.sums_only) {
    const int16_t both[] = {(int16_t)sum(totals[0]), (int16_t)sum(totals[1])};
    __builtin_memcpy(out + 4 * m, both, 4);
  }
  if (layout.by_token) {
    __builtin_memcpy(codes + m * kGroup, bytes, kGroup);
    return;
  }
  for (int quad = 0; quad < kGroup / 4; ++quad)
    __builtin_memcpy(codes + quad_offset(quad, m, m_count), bytes + 4 * quad, 4);
}

// Packs one token's group as a tile of one token, and moves its parts to their places in the block of 256 at `block`.
INLINE void pack_group_by_row(const float* x, int g, const ActLayout& layout, uint8_t* block) {
  struct {
    int32_t starts[2];
    float scale;
    uint8_t numbers[kGroup];
  } group;
  uint8_t* packed = (uint8_t*)(group.starts + 2 - layout.parts);
  pack_group(x, 0, 1, layout, packed);
  float* scales = (float*)block;
  scales[g] = group.scale;
  for (int part = 0; part < layout.parts; ++part) {
    const int32_t start = load_as<int32_t>(packed + 4 * part);
    scales[kSuperGroups + g * layout.parts + part] = (float)start * group.scale;
  }
  memcpy(scales + kSuperGroups * (1 + layout.parts) + g * kGroup / 4, group.numbers, kGroup);
}

void pack_bf16(const float* x, int64_t stride, int m_count, int64_t n_in, uint8_t* tile) {
  for (int m = 0; m < m_count; ++m) {
    const float* row = x + m * stride;
    for (int64_t k = 0; k < n_in + n_in % 2; k += W) {
      float values[W] = {};
      memcpy(values, row + k, (size_t)(n_in - k < W ? n_in - k : W) * 4);
      const U bits = bf16_bits(load(values));
      for (int i = 0; i < W && k + i < n_in; i += 2) {
        const uint32_t pair = bits[i] | bits[i + 1] << 16;
        memcpy(tile + ((k + i) / 2 * m_count + m) * 4, &pair, 4);
      }
    }
  }
}

void pack_f32(const float* x, int64_t stride, int m_count, int64_t n_in, float* tile) {
  if (m_count == 1) {
    memcpy(tile, x, (size_t)n_in * 4);
    return;
  }
  constexpr int64_t kStep = 64;  // elements of k in a step: the lines written stay in the cache until the next token
  for (int64_t begin = 0; begin < n_in; begin += kStep) {
    const int64_t end = begin + kStep < n_in ? begin + kStep : n_in;
    for (int m = 0; m < m_count; ++m)
      for (int64_t k = begin; k < end; ++k) tile[k * m_count + m] = x[m * stride + k];
  }
}

// A tile of activations runs against this many bytes of panels before the next tile starts; tile and panels together
// stay in the second-level cache. If a tile is too long to stay there (f32, large k), tiles and panels are both cut
// into parts of k. Parts of many panels fit in the cache, so each activation is fetched for more rows. The parts are
// summed in y, which costs too much for shorter tiles.
constexpr int64_t kPanelBlockBytes = 160 * 1024, kPartsBlockBytes = 512 * 1024;
constexpr int64_t kLongTileBytes = 200 * 1024, kPartBytes = 48 * 1024;  // bytes of activations
constexpr int64_t kPartUnit = kGroup * kSuperGroups;                    // k of a part is a multiple of this

INLINE int parts_of(const MatmulJob& job, const PanelRange& r) {
  const int64_t bytes = (job.tiling.n_tokens + job.tiling.n_tiles - 1) / job.tiling.n_tiles * job.act_token_bytes;
  if (r.tile_end - r.tile_begin == 1 || bytes < kLongTileBytes || job.n_in % kPartUnit != 0) return 1;
  const int64_t n = (bytes + kPartBytes - 1) / kPartBytes, max_parts = job.n_in / kPartUnit;
  return (int)(n < max_parts ? n : max_parts);
}

// Calls f(panel, first token, tokens of the tile, part) for each tile of the range.
template <class Fn>
INLINE void for_each_tile(const Tiling& tiling, int64_t panel_bytes, int n_parts, const PanelRange& r, Fn&& f) {
  int64_t step = n_parts == 1 ? kPanelBlockBytes / panel_bytes : kPartsBlockBytes * n_parts / panel_bytes;
  step = step < 1 ? 1 : step;
  for (int64_t first = r.panel_begin; first < r.panel_end; first += step) {
    const int64_t last = first + step < r.panel_end ? first + step : r.panel_end;
    for (int part = 0; part < n_parts; ++part) {
      for (int tile = r.tile_begin; tile < r.tile_end; ++tile) {
        const int begin = tile_begin(tiling, tile), m = tile_begin(tiling, tile + 1) - begin;
        for (int64_t panel = first; panel < last; ++panel) f(panel, begin, m, part);
      }
    }
  }
}

INLINE void run_tile(const MatmulJob& job, int64_t panel, int token, int m, float* out) {
  job.tiles[m - 1](job.panels + panel * job.panel_bytes, job.act + token * job.act_token_bytes, job.n_in, job.codebook,
                   out);
}

INLINE void run_part(const MatmulJob& job, int64_t panel, int token, int m, int part, int n_parts, float* out) {
  const int64_t units = job.n_in / kPartUnit;
  const int64_t begin = part * units / n_parts, n = (part + 1) * units / n_parts - begin;
  job.tiles[m - 1](job.panels + panel * job.panel_bytes + begin * (job.panel_bytes / units),
                   job.act + token * job.act_token_bytes + begin * m * (job.act_token_bytes / units), n * kPartUnit,
                   job.codebook, out);
}

}  // namespace

// Writes a tile's result times the factor, plus bias, to rows of y, or adds the result to y.
void finish(const MatmulJob& job, const float* out, int64_t panel, int token, int m) {
  const int64_t first = panel * kPanelRows;
  const int n = (int)(job.n_out - first < kPanelRows ? job.n_out - first : kPanelRows);
  for (int i = 0; i < m; ++i, out += kPanelRows) {
    float* y = job.y + (token + i) * job.y_stride + first;
    for (int c = 0; c + W <= n; c += W) {
      F r = load(out + c) * job.factor;
      if (job.bias) r += load(job.bias + first + c);
      if (job.accumulate) r += load(y + c);
      store(y + c, r);
    }
    for (int c = n - n % W; c < n; ++c)
      y[c] = out[c] * job.factor + (job.bias ? job.bias[first + c] : 0.0f) + (job.accumulate ? y[c] : 0.0f);
  }
}

namespace {

// Writes elements [begin, begin + n) of k of a 16-bit panel to out [n, 32 rows].
INLINE void widen(const uint8_t* panel, Dense type, int64_t begin, int64_t n, float* out) {
  const uint16_t* from = (const uint16_t*)panel + begin * kPanelRows;
  if (type == Dense::kF16) {
    for (int64_t i = 0; i < n * kPanelRows; i += W) store(out + i, load_f16(from + i));
    return;
  }
  for (int64_t k = 0; k < n; k += 2) {  // a pair of k in each 32-bit lane; for odd n, the last store is past the rows
    for (int row = 0; row < kPanelRows; row += W) {
      const I pair = load_as<I>(from + k * kPanelRows + row * 2);
      store(out + k * kPanelRows + row, (F)(pair << 16));
      store(out + (k + 1) * kPanelRows + row, (F)(pair & (int32_t)0xFFFF0000));
    }
  }
}

// The parts of a few panels as f32, in the second-level cache: each tile of activations, in the first-level cache, runs
// against all of them.
constexpr int64_t kWidenK = 1024, kWidenPanels = 2;
alignas(64) thread_local float widened[kWidenPanels][kWidenK * kPanelRows];

INLINE void matmul_widened(const MatmulJob& job, const MatmulJob& later, const PanelRange& r, float* out) {
  for (int64_t first = r.panel_begin; first < r.panel_end; first += kWidenPanels) {
    const int64_t last = first + kWidenPanels < r.panel_end ? first + kWidenPanels : r.panel_end;
    for (int64_t k = 0; k < job.n_in; k += kWidenK) {
      const int64_t n = job.n_in - k < kWidenK ? job.n_in - k : kWidenK;
      for (int64_t panel = first; panel < last; ++panel)
        widen(job.panels + panel * job.panel_bytes, job.dense, k, n, widened[panel - first]);
      for (int tile = r.tile_begin; tile < r.tile_end; ++tile) {
        const int token = tile_begin(job.tiling, tile), m = tile_begin(job.tiling, tile + 1) - token;
        const uint8_t* act = job.act + token * job.act_token_bytes + k * m * 4;
        for (int64_t panel = first; panel < last; ++panel) {
          kDenseTiles[(int)Dense::kF32].of[m - 1]((const uint8_t*)widened[panel - first], act, n, nullptr, out);
          finish(k == 0 ? job : later, out, panel, token, m);
        }
      }
    }
  }
}

}  // namespace

void pack_activations(const float* x, int64_t stride, int m_count, int64_t n_in, const ActLayout& layout,
                      uint8_t* tile) {
  if (layout.dense) {
    if constexpr (kBf16Blocks)
      if (layout.blocks) return pack_blocks(x, stride, m_count, n_in, tile);
    if (layout.bf16) return pack_bf16(x, stride, m_count, n_in, tile);
    return pack_f32(x, stride, m_count, n_in, (float*)tile);
  }
  if (layout.by_row && layout.int16_limit > 0) return pack_ternary(x, stride, m_count, n_in, tile);
  if (layout.by_row) {
    const int64_t block_bytes = act_token_bytes(layout, kGroup * kSuperGroups);
    for (int m = 0; m < m_count; ++m)
      for (int64_t g = 0; g < n_in / kGroup; ++g, tile += g % kSuperGroups == 0 ? block_bytes : 0)
        pack_group_by_row(x + m * stride + g * kGroup, (int)(g % kSuperGroups), layout, tile);
    return;
  }
  const int64_t group_bytes = act_token_bytes(layout, kGroup) * m_count;
  for (int m = 0; m < m_count; ++m) {
    for (int64_t g = 0; g < n_in / kGroup; ++g) {
      const float* group = x + m * stride + g * kGroup;
      if (layout.int16_limit > 0) {
        pack_group_int16(group, m, m_count, layout, tile + g * group_bytes);
      } else {
        pack_group(group, m, m_count, layout, tile + g * group_bytes);
      }
    }
  }
}

void matmul(const MatmulJob& job, const PanelRange& range) {
  alignas(64) float out[kMaxTile * kPanelRows];
  MatmulJob later = job;  // for all parts of k after the first
  later.bias = nullptr;
  later.accumulate = true;
  if constexpr (kInt16Tile > 0) {
    const bool in_bytes = kAddsPairs && job.unpacked == Unpacked::kBytes && job.file_blocks == nullptr;
    if (job.unpacked == Unpacked::kInt16 || in_bytes) return matmul_in_parts(job, range);
  }
  if constexpr (kBf16Blocks) {
    if (job.unpacked == Unpacked::kBF16) return matmul_in_bf16(job, range);
    if (job.unpacked == Unpacked::kInt8) return matmul_in_int8(job, range);
  }
  if (job.unpacked == Unpacked::kRows) return dot_file_blocks(job, range);
  if (job.unpacked == Unpacked::kBytes) return matmul_in_bytes(job, range);
  if (job.unpacked == Unpacked::kF32) return matmul_widened(job, later, range, out);
  const int n_parts = parts_of(job, range);
  if (n_parts == 1) {
    for_each_tile(
        job.tiling, job.panel_bytes, 1,
        range, [&](int64_t panel, int token, int m, int) __attribute__((always_inline)) {
          run_tile(job, panel, token, m, out);
          finish(job, out, panel, token, m);
        });
    return;
  }
  for_each_tile(
      job.tiling, job.panel_bytes, n_parts,
      range, [&](int64_t panel, int token, int m, int part) __attribute__((always_inline)) {
        run_part(job, panel, token, m, part, n_parts, out);
        finish(part == 0 ? job : later, out, panel, token, m);
      });
}

void gate_up(const MatmulJob& gate, const MatmulJob& up, int act, const PanelRange& range) {
  const int64_t bytes = gate.panel_bytes + up.panel_bytes;
  for_each_tile(
      gate.tiling, bytes, 1, range, [&](int64_t panel, int token, int m, int) __attribute__((always_inline)) {
        alignas(64) float g[kMaxTile * kPanelRows], u[kMaxTile * kPanelRows];
        run_tile(gate, panel, token, m, g);
        run_tile(up, panel, token, m, u);
        const int64_t first = panel * kPanelRows;
        const int n = (int)(gate.n_out - first < kPanelRows ? gate.n_out - first : kPanelRows);
        for (int i = 0; i < m; ++i) {
          float *gi = g + i * kPanelRows, *ui = u + i * kPanelRows;
          for (int c = 0; c < n; ++c) {
            gi[c] = gi[c] * gate.factor + (gate.bias ? gate.bias[first + c] : 0.0f);
            ui[c] = ui[c] * up.factor + (up.bias ? up.bias[first + c] : 0.0f);
          }
          float* y = gate.y + (token + i) * gate.y_stride + first;
          act_mul_row(n == kPanelRows ? y : gi, gi, ui, kPanelRows, act);
          if (n < kPanelRows) memcpy(y, gi, (size_t)n * 4);
        }
      });
}

}  // namespace ingot::cpu::INGOT_ISA
