// Attention over a paged cache: handles blocks of up to 64 keys in order, with a softmax update for each block (online
// softmax, arXiv:1805.02867). The rows of a job are all query heads that share one KV head, for some tokens, so each
// key and value is read once for all of them. The two products are tiles of rows x vectors held in registers.
#include <type_traits>

#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/kernels/tables.h"

namespace ingot::cpu::INGOT_ISA {
namespace {

constexpr int kMaxRows = W == 16 ? 12 : 6;  // most rows of a tile
constexpr int RV = W == 4 ? 4 : 2;          // vectors in each row of a tile
constexpr int kChunks = kKeyBlock / kKeyChunk;
constexpr float kMinusInfinity = -__builtin_inff();

template <KvType type>
constexpr bool kHasScales = type == KvType::kQ8_0 || type == KvType::kQ4_0;

// The elements from i on, all of one row of 16.
template <KvType type>
INLINE F load_kv(const uint8_t* p, int64_t i) {
  if constexpr (type == KvType::kQ4_0) return load_nibbles(p + i / 32 * 16 + i % 16, (int)(i / 16 % 2) * 4);
  if constexpr (type == KvType::kF32) return load((const float*)p + i);
  if constexpr (type == KvType::kBF16) return load_bf16((const uint16_t*)p + i);
  if constexpr (type == KvType::kQ8_0) return load_s8((const int8_t*)p + i);
  if constexpr (type == KvType::kE4M3) return load_e4m3(p + i);
  return load_f16((const uint16_t*)p + i);
}

// Up to 64 keys with consecutive positions, in chunks as stored in the pages.
struct KeyBlock {
  int n_chunks = 0;
  const uint8_t* keys[kChunks];                                 // [head_dim, 16]
  const uint8_t* values[kChunks];                               // rows of value_stride
  const uint16_t *key_scales[kChunks], *value_scales[kChunks];  // [groups, 16]
  int first[kChunks];                                           // position of the chunk's first key
  int count[kChunks];                                           // keys before the end, at most 16
};

// The working memory of a job, all f32.
struct Rows {
  int n;           // n_tokens * group; row = token * group + head
  int dim;         // head_dim rounded up to 32
  float* q;        // tiles [head_dim, rows of the tile], scaled
  float* scores;   // [n, 64]
  float* out;      // [n, dim]
  float* largest;  // [n]
  float* sum;      // [n]
  float* values;   // [64, dim]: the values transposed from the keys, if values are keys
};

// scores[row, 16 * chunk + key] = q . k for M rows and the chunks [chunk, chunk + n), n * 16 = RV * W.
template <KvType type, int M>
void score_tile(const float* q, const KeyBlock& block, int chunk, int head_dim, float* scores) {
  constexpr int per_chunk = kKeyChunk / W;
  constexpr bool scaled = kHasScales<type>;
  const uint8_t* keys[RV];
  for (int v = 0; v < RV; ++v) keys[v] = block.keys[chunk + v / per_chunk];
  F acc[M][RV] = {};
  const int group = scaled ? kKvGroup : head_dim;
  for (int begin = 0; begin < head_dim; begin += group) {
    F scales[RV];
    if constexpr (scaled)
      for (int v = 0; v < RV; ++v)
        scales[v] =
            load_f16(block.key_scales[chunk + v / per_chunk] + begin / kKvGroup * kKeyChunk + v % per_chunk * W);
    const int end = begin + group < head_dim ? begin + group : head_dim;
#pragma GCC unroll 2
    for (int d = begin; d < end; ++d) {
      F k[RV];
#pragma GCC unroll 4
      for (int v = 0; v < RV; ++v) {
        k[v] = load_kv<type>(keys[v], d * kKeyChunk + v % per_chunk * W);
        if constexpr (scaled) k[v] *= scales[v];
      }
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        const F x = all(q[d * M + m]);
#pragma GCC unroll 4
        for (int v = 0; v < RV; ++v) acc[m][v] += x * k[v];
      }
    }
  }
  for (int m = 0; m < M; ++m)
    for (int v = 0; v < RV; ++v) store(scores + m * kKeyBlock + chunk * kKeyChunk + v * W, acc[m][v]);
}

// out[row, :] += weights[row, :] * values, for M rows.
template <KvType type, int M>
void value_tile(const float* weights, const KeyBlock& block, int value_stride, int dim, float* out) {
  for (int d = 0; d < dim; d += RV * W) {
    F acc[M][RV];
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m)
      for (int v = 0; v < RV; ++v) acc[m][v] = load(out + m * dim + d + v * W);
    for (int chunk = 0; chunk < block.n_chunks; ++chunk) {
      const uint8_t* values = block.values[chunk];
      const float* w = weights + chunk * kKeyChunk;
      float scales[kKeyChunk];  // of these columns, which are all of one group
      if constexpr (kHasScales<type>)
        for (int i = 0; i < kKeyChunk; i += W)
          store(scales + i, load_f16(block.value_scales[chunk] + d / kKvGroup * kKeyChunk + i));
      for (int key = 0; key < block.count[chunk]; ++key, ++w) {
        F x[RV];
#pragma GCC unroll 4
        for (int v = 0; v < RV; ++v) {
          x[v] = load_kv<type>(values, (int64_t)key * value_stride + d + v * W);
          if constexpr (kHasScales<type>) x[v] *= all(scales[key]);
        }
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) {
          const F p = all(w[m * kKeyBlock]);
#pragma GCC unroll 4
          for (int v = 0; v < RV; ++v) acc[m][v] += p * x[v];
        }
      }
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m)
      for (int v = 0; v < RV; ++v) store(out + m * dim + d + v * W, acc[m][v]);
  }
}

// Transposes the keys of a chunk into rows of f32, [16, dim].
template <KvType type>
void transpose_chunk(const KeyBlock& block, int chunk, int head_dim, int dim, float* to) {
  for (int first = 0; first < kKeyChunk; first += W) {
    for (int d = 0; d < dim; d += W) {
      F rows[W] = {};
      for (int i = 0; i < W && d + i < head_dim; ++i) {
        rows[i] = load_kv<type>(block.keys[chunk], (d + i) * kKeyChunk + first);
        if constexpr (kHasScales<type>)
          rows[i] *= load_f16(block.key_scales[chunk] + (d + i) / kKvGroup * kKeyChunk + first);
      }
      transpose(rows);
      for (int i = 0; i < W; ++i) store(to + (first + i) * dim + d, rows[i]);
    }
  }
}

using ScoreFn = void (*)(const float* q, const KeyBlock& block, int chunk, int head_dim, float* scores);
using TransposeFn = void (*)(const KeyBlock& block, int chunk, int head_dim, int dim, float* to);
using ValueFn = void (*)(const float* weights, const KeyBlock& block, int value_stride, int dim, float* out);
struct TileKernels {
  int rows;
  ScoreFn score;
  ValueFn value;
};
using TileSizes = std::conditional_t<W == 16, Lanes<1, 2, 3, 4, 6, 8, 12>, Lanes<1, 2, 3, 4, 6>>;
template <int... rows>
constexpr int count(Lanes<rows...>) {
  return sizeof...(rows);
}
constexpr int kTileSizes = count(TileSizes());
struct TilesOfType {
  TileKernels of[kTileSizes];
};
template <KvType type, int... rows>
constexpr TilesOfType tiles_of(Lanes<rows...>) {
  return {{{rows, score_tile<type, rows>, value_tile<type, rows>}...}};
}
constexpr TilesOfType kTiles[6] = {tiles_of<KvType::kF32>(TileSizes()),  tiles_of<KvType::kF16>(TileSizes()),
                                   tiles_of<KvType::kBF16>(TileSizes()), tiles_of<KvType::kQ8_0>(TileSizes()),
                                   tiles_of<KvType::kE4M3>(TileSizes()), tiles_of<KvType::kQ4_0>(TileSizes())};
const TransposeFn kTransposes[6] = {transpose_chunk<KvType::kF32>,  transpose_chunk<KvType::kF16>,
                                    transpose_chunk<KvType::kBF16>, transpose_chunk<KvType::kQ8_0>,
                                    transpose_chunk<KvType::kE4M3>, transpose_chunk<KvType::kQ4_0>};
static_assert(kKvGroup % (RV * W) == 0);

// The smallest tile that holds n rows, or the largest tile; the results of rows past n are ignored.
INLINE const TileKernels& tile_for(KvType type, int n) {
  const TileKernels* tiles = kTiles[(int)type].of;
  int i = 0;
  while (i + 1 < kTileSizes && tiles[i].rows < n) ++i;
  return tiles[i];
}

// Gathers chunks from *position on, and moves *position past them.
void next_block(const AttentionJob& job, int* position, KeyBlock* block) {
  const int64_t chunk_bytes = kv_chunk_bytes(job.kv.type, job.head_dim);
  block->n_chunks = 0;
  while (block->n_chunks < kChunks && *position < job.key_end) {
    const int page = *position / job.block_size, slot = *position % job.block_size / kKeyChunk * kKeyChunk;
    const uint8_t* base = job.pages + offset_of(job.places, job.blocks[page]);
    const int first = page * job.block_size + slot;
    const int in_page = job.block_size - slot < kKeyChunk ? job.block_size - slot : kKeyChunk;
    const int i = block->n_chunks++;
    block->keys[i] = base + slot / kKeyChunk * chunk_bytes;
    block->values[i] = base + job.kv.values_at + (int64_t)slot * job.kv.value_stride * kv_bits(job.kv.type) / 8;
    const int64_t scales = (int64_t)slot * kv_groups(job.head_dim) * 2;
    block->key_scales[i] = (const uint16_t*)(base + job.kv.key_scales_at + scales);
    block->value_scales[i] = (const uint16_t*)(base + job.kv.value_scales_at + scales);
    block->first[i] = first;
    block->count[i] = first + in_page < job.key_end ? in_page : job.key_end - first;
    *position = first + in_page;
  }
}

// Writes minus infinity where a query must not attend: after itself, before its window, outside the job's range.
INLINE void mask_row(const AttentionJob& job, const KeyBlock& block, int query, float* scores) {
  const int begin = job.window > 0 && query + 1 - job.window > job.key_begin ? query + 1 - job.window : job.key_begin;
  for (int chunk = 0; chunk < block.n_chunks; ++chunk) {
    const int seen_begin = begin - block.first[chunk];
    const int after_query = query + (job.causal ? 1 : job.window) - block.first[chunk];
    const bool is_cut = !job.sees_all && (job.causal || job.window > 0) && after_query < block.count[chunk];
    const int seen_end = is_cut ? after_query : block.count[chunk];
    if (seen_begin <= 0 && seen_end == kKeyChunk) continue;
    for (int i = 0; i < kKeyChunk; ++i)
      if (i < seen_begin || i >= seen_end) scores[chunk * kKeyChunk + i] = kMinusInfinity;
  }
}

// Turns a row's scores of a block into weights relative to the largest score so far, and rescales the earlier sums.
INLINE void softmax_row(const Rows& rows, int row, int n_keys) {
  float* scores = rows.scores + row * kKeyBlock;
  F top = all(rows.largest[row]);
  for (int i = 0; i < n_keys; i += W) top = max(load(scores + i), top);
  const float largest_now = largest(top), before = rows.largest[row];
  if (largest_now == kMinusInfinity) {
    for (int i = 0; i < n_keys; i += W) store(scores + i, F{});
    return;
  }
  F sums = {};
  for (int i = 0; i < n_keys; i += W) {
    const F weight = exp(load(scores + i) - largest_now);
    store(scores + i, weight);
    sums += weight;
  }
  if (largest_now != before) {
    const float factor = exp(all(before - largest_now))[0];
    rows.sum[row] *= factor;
    float* out = rows.out + row * rows.dim;
    for (int i = 0; i < rows.dim; i += W) store(out + i, load(out + i) * factor);
    rows.largest[row] = largest_now;
  }
  rows.sum[row] += sum(sums);
}

INLINE void cap_row(float* scores, int n_keys, float softcap) {
  for (int i = 0; i < n_keys; i += W) store(scores + i, softcap * tanh(load(scores + i) * (1.0f / softcap)));
}

void start_rows(const AttentionJob& job, Rows* rows) {
  const int n = job.n_tokens * job.group;
  rows->n = n;
  rows->dim = (job.head_dim + kPanelRows - 1) / kPanelRows * kPanelRows;
  rows->q = job.scratch;
  rows->out = rows->q + (int64_t)(kMaxQueryRows + kMaxRows) * rows->dim;
  rows->scores = rows->out + (int64_t)(kMaxQueryRows + kMaxRows) * rows->dim;
  rows->largest = rows->scores + (kMaxQueryRows + kMaxRows) * kKeyBlock;
  rows->sum = rows->largest + kMaxQueryRows;
  rows->values = rows->sum + kMaxQueryRows;
  float* q = rows->q;
  for (int first = 0; first < n; first += kMaxRows) {
    const int m_count = tile_for(job.kv.type, n - first).rows;
    for (int m = 0; m < m_count; ++m) {
      const int row = first + m < n ? first + m : n - 1;
      const float* from = job.q + row / job.group * job.q_stride + row % job.group * job.head_dim;
      for (int d = 0; d < job.head_dim; ++d) q[d * m_count + m] = from[d] * job.scale;
    }
    q += (int64_t)m_count * job.head_dim;
  }
  memset(rows->out, 0, sizeof(float) * (size_t)((n + kMaxRows) * rows->dim));
  for (int row = 0; row < n; ++row) {
    rows->largest[row] = kMinusInfinity;
    rows->sum[row] = 0;
  }
}

void finish_rows(const AttentionJob& job, const Rows& rows) {
  for (int row = 0; row < rows.n; ++row) {
    const float* from = rows.out + row * rows.dim;
    if (job.partial) {
      float* to = job.partial + (int64_t)row * (2 + job.head_dim);
      to[0] = rows.largest[row];
      to[1] = rows.sum[row];
      for (int d = 0; d < job.head_dim; ++d) to[2 + d] = from[d];
      continue;
    }
    float* to = job.y + row / job.group * job.y_stride + row % job.group * job.head_dim;
    const float sink = job.sinks ? exp(all(job.sinks[row % job.group] - rows.largest[row]))[0] : 0.0f;
    const float inverse = 1.0f / (rows.sum[row] + sink);
    for (int d = 0; d < job.head_dim; ++d) to[d] = from[d] * inverse;
  }
}

}  // namespace

void attention(const AttentionJob& job) {
  Rows rows;
  start_rows(job, &rows);
  for (int position = job.key_begin; position < job.key_end;) {
    KeyBlock block;
    next_block(job, &position, &block);
    constexpr int step = RV * W / kKeyChunk;
    for (int i = block.n_chunks; i < (block.n_chunks + step - 1) / step * step; ++i)
      block.keys[i] = block.keys[i - 1], block.key_scales[i] = block.key_scales[i - 1];
    const int n_keys = block.n_chunks * kKeyChunk;
    for (int i = 0; job.kv.values_are_keys && i < block.n_chunks; ++i) {
      float* transposed = rows.values + (int64_t)i * kKeyChunk * rows.dim;
      kTransposes[(int)job.kv.type](block, i, job.head_dim, rows.dim, transposed);
      block.values[i] = (const uint8_t*)transposed;
    }
    const float* q = rows.q;
    for (int first = 0; first < rows.n; first += kMaxRows) {
      const TileKernels& tile = tile_for(job.kv.type, rows.n - first);
      float* scores = rows.scores + first * kKeyBlock;
      for (int chunk = 0; chunk < block.n_chunks; chunk += step) tile.score(q, block, chunk, job.head_dim, scores);
      q += (int64_t)tile.rows * job.head_dim;
      for (int row = first; row < rows.n && row < first + kMaxRows; ++row) {
        if (job.softcap > 0) cap_row(rows.scores + row * kKeyBlock, n_keys, job.softcap);
        mask_row(job, block, job.position + row / job.group, rows.scores + row * kKeyBlock);
        softmax_row(rows, row, n_keys);
      }
      const ValueFn add_values = job.kv.values_are_keys ? tile_for(KvType::kF32, rows.n - first).value : tile.value;
      add_values(scores, block, job.kv.values_are_keys ? rows.dim : job.kv.value_stride, rows.dim,
                 rows.out + (int64_t)first * rows.dim);
    }
  }
  finish_rows(job, rows);
}

void merge_attention(const float* partials, int64_t part_stride, int parts, int group, int head_dim, const float* sinks,
                     float* y) {
  for (int row = 0; row < group; ++row, y += head_dim) {
    const float* first = partials + (int64_t)row * (2 + head_dim);
    float top = kMinusInfinity, total = 0;
    for (int i = 0; i < parts; ++i) top = first[i * part_stride] > top ? first[i * part_stride] : top;
    for (int d = 0; d < head_dim; ++d) y[d] = 0;
    for (int i = 0; i < parts; ++i) {
      const float* part = first + i * part_stride;
      const float factor = exp(all(part[0] - top))[0];
      total += factor * part[1];
      for (int d = 0; d < head_dim; ++d) y[d] += factor * part[2 + d];
    }
    if (sinks) total += exp(all(sinks[row] - top))[0];
    for (int d = 0; d < head_dim; ++d) y[d] /= total;
  }
}

namespace {

// A group of 32, or the rest of a head and zeros, before it is quantized.
struct PaddedGroup {
  float x[kKvGroup];
  float size;     // the largest absolute value
  float spoiled;  // 0; NaN if there is a NaN or an Inf
};
INLINE PaddedGroup padded(const float* x, int n) {
  PaddedGroup group = {};
  __builtin_memcpy(group.x, x, (size_t)n * 4);
  F top = {}, none = {};
  for (int i = 0; i < kKvGroup; i += W) {
    const F v = load(group.x + i);
    top = max(abs(v), top);
    none += v * 0.0f;
  }
  group.size = largest(top), group.spoiled = sum(none);
  return group;
}

// Stores a scale. NaN or Inf in the group makes the scale NaN or Inf on purpose, so that the error spreads.
INLINE void store_scale(uint16_t* to, float scale, const PaddedGroup& group) {
  uint16_t half[W];
  store_f16(half, all(scale + group.spoiled));
  *to = half[0];
}

// Quantizes a group: stores bytes x / scale at codes[i * code_step], and the scale. The result equals RefBackend's bit
// for bit.
INLINE void write_group(const float* x, int n, int8_t* codes, int code_step, uint16_t* scale) {
  const PaddedGroup group = padded(x, n);
  const float inverse = group.size > 0 ? 127.0f / group.size : 0.0f;
  store_scale(scale, group.size / 127.0f, group);
  for (int i = 0; i < n; i += W) {
    // Dropping the last bit keeps compilers from merging the product's rounding and the rounding to an integer into
    // one.
    const I q = round_to_int((F)((I)(load(group.x + i) * inverse) & ~1));
    for (int lane = 0; lane < W && i + lane < n; ++lane) codes[(i + lane) * code_step] = (int8_t)q[lane];
  }
}

void write_groups(const float* k, const float* v, int head_dim, const KvLayout& kv, uint8_t* page, int slot) {
  const int chunk = slot / kKeyChunk, lane = slot % kKeyChunk;
  int8_t* key = (int8_t*)page + (int64_t)chunk * head_dim * kKeyChunk + lane;
  int8_t* value = (int8_t*)page + kv.values_at + (int64_t)slot * kv.value_stride;
  const int64_t first_scale = (int64_t)chunk * kv_groups(head_dim) * kKeyChunk + lane;
  uint16_t* key_scale = (uint16_t*)(page + kv.key_scales_at) + first_scale;
  uint16_t* value_scale = (uint16_t*)(page + kv.value_scales_at) + first_scale;
  for (int begin = 0; begin < head_dim; begin += kKvGroup) {
    const int n = head_dim - begin < kKvGroup ? head_dim - begin : kKvGroup, at = begin / kKvGroup * kKeyChunk;
    write_group(k + begin, n, key + begin * kKeyChunk, kKeyChunk, key_scale + at);
    if (!kv.values_are_keys) write_group(v + begin, n, value + begin, 1, value_scale + at);
  }
}

// Quantizes a group to codes from 0 to 15, and stores the scale: as RefBackend, bit for bit.
INLINE void nibbles_of(const float* x, int n, uint8_t (&codes)[kKvGroup], uint16_t* scale) {
  const PaddedGroup group = padded(x, n);
  int first = 0;  // of the elements of the largest size
  while (first < n - 1 && __builtin_fabsf(group.x[first]) != group.size) ++first;
  const float extreme = group.size > 0 ? group.x[first] : 0.0f, step = extreme / -8.0f;
  store_scale(scale, step, group);
  const float inverse = group.size > 0 ? 1.0f / step : 0.0f;
  float products[kKvGroup];
  for (int i = 0; i < kKvGroup; i += W) store(products + i, load(group.x + i) * inverse);
  // The products pass through memory, so that compilers do not merge a product's rounding with the sum's.
  __asm__ volatile("" : : "r"(products) : "memory");
  for (int i = 0; i < kKvGroup; i += W) {
    const F sums = max(min(load(products + i) + 8.5f, all(15.0f)), F{});
    const I code = __builtin_convertvector(sums, I);
    for (int lane = 0; lane < W; ++lane) codes[i + lane] = (uint8_t)code[lane];
  }
}

void write_nibbles(const float* k, const float* v, int head_dim, const KvLayout& kv, uint8_t* page, int slot) {
  const int chunk = slot / kKeyChunk, lane = slot % kKeyChunk;
  uint8_t* key = page + chunk * kv_chunk_bytes(kv.type, head_dim) + lane;
  uint8_t* value = page + kv.values_at + (int64_t)slot * kv.value_stride / 2;
  const int64_t first_scale = (int64_t)chunk * kv_groups(head_dim) * kKeyChunk + lane;
  uint16_t* key_scale = (uint16_t*)(page + kv.key_scales_at) + first_scale;
  uint16_t* value_scale = (uint16_t*)(page + kv.value_scales_at) + first_scale;
  uint8_t codes[kKvGroup];
  for (int begin = 0; begin < head_dim; begin += kKvGroup) {
    const int n = head_dim - begin < kKvGroup ? head_dim - begin : kKvGroup, at = begin / kKvGroup * kKeyChunk;
    nibbles_of(k + begin, n, codes, key_scale + at);
    for (int i = 0; i < n; i += 2) key[(begin + i) / 2 * kKeyChunk] = (uint8_t)(codes[i] | codes[i + 1] << 4);
    if (kv.values_are_keys) continue;
    nibbles_of(v + begin, n, codes, value_scale + at);
    for (int i = 0; i < kKvGroup / 2; ++i) value[begin / 2 + i] = (uint8_t)(codes[i] | codes[16 + i] << 4);
  }
}

}  // namespace

void write_kv(const float* k, const float* v, int head_dim, const KvLayout& kv, uint8_t* page, int slot) {
  if (kv.type == KvType::kQ8_0) return write_groups(k, v, head_dim, kv, page, slot);
  if (kv.type == KvType::kQ4_0) return write_nibbles(k, v, head_dim, kv, page, slot);
  void *keys = page, *values = page + kv.values_at;
  const int64_t first_key = (int64_t)(slot / kKeyChunk) * head_dim * kKeyChunk + slot % kKeyChunk;
  const int64_t first_value = (int64_t)slot * kv.value_stride;
  if (kv.type == KvType::kF32) {
    for (int d = 0; d < head_dim; ++d) ((float*)keys)[first_key + d * kKeyChunk] = k[d];
    for (int d = 0; d < head_dim && !kv.values_are_keys; ++d) ((float*)values)[first_value + d] = v[d];
    return;
  }
  for (int begin = 0; begin < head_dim; begin += W) {
    const int n = head_dim - begin < W ? head_dim - begin : W;
    F both[2] = {};
    __builtin_memcpy(&both[0], k + begin, (size_t)n * 4);
    __builtin_memcpy(&both[1], v + begin, (size_t)n * 4);
    if (kv.type == KvType::kE4M3) {
      const U codes[2] = {e4m3_bits(both[0]), e4m3_bits(both[1])};
      for (int i = 0; i < n; ++i) {
        ((uint8_t*)keys)[first_key + (begin + i) * kKeyChunk] = (uint8_t)codes[0][i];
        if (!kv.values_are_keys) ((uint8_t*)values)[first_value + begin + i] = (uint8_t)codes[1][i];
      }
      continue;
    }
    uint16_t halves[2][W];
    for (int i = 0; i < 2; ++i) {
      if (kv.type == KvType::kF16) {
        store_f16(halves[i], both[i]);
      } else {
        const U bits = bf16_bits(both[i]);
        for (int lane = 0; lane < W; ++lane) halves[i][lane] = (uint16_t)bits[lane];
      }
    }
    for (int i = 0; i < n; ++i) ((uint16_t*)keys)[first_key + (begin + i) * kKeyChunk] = halves[0][i];
    if (!kv.values_are_keys) __builtin_memcpy((uint16_t*)values + first_value + begin, halves[1], (size_t)n * 2);
  }
}

}  // namespace ingot::cpu::INGOT_ISA
