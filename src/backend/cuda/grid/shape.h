// How grid/layers.cuh divides a layer. A layer has four products, with attention after the first. The rows of a product
// are cut into tiles of 16 rows, and the columns of a tile into steps of 128 columns. A chunk is `parts` steps of a
// tile, one for each warp, or of several tiles if a row has few steps. A block processes one chunk after another,
// through a ring in shared memory. All of this is known when the kernel is compiled.
#pragma once
#include <cuda.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/layer_weight.h"
#include "backend/cuda/matmul/packed_weight.h"

namespace ingot::cuda::grid {

constexpr int kWarps = 16;  // that compute
constexpr int kThreads = 32 * kWarps;
constexpr int kCopyThreads = 128;  // only one warp copies, but setmaxnreg is for groups of four warps
constexpr int kMaxSlots = 16;
constexpr int kMaxBatch = 8;   // groups of units whose sums are added up at a time
constexpr int kRowPad = 64;    // bytes between rows of numbers in a slot: rows of 64 mod 128 bytes avoid bank conflicts
constexpr int kStepKeys = 16;  // keys of a warp's step in attention; all in one block of the cache
constexpr int kMaxGroup = 8;   // query heads of a KV head
constexpr int kMaxSplits = 64;  // of the keys of a KV head
constexpr int kMaxUsed = 32;   // experts of a token: one for each lane of a warp
constexpr int kMaxRows = 8;    // of a step: a row is a token
constexpr int kRowSumBytes = 112 << 10;  // with several rows, at most for the sums of a batch of units

enum Phase { kQkv, kOut, kGateUp, kDown, kPhases };

struct WeightKind {
  Layout layout = Layout::kCodes4;
  bool has_min = false, group16 = false;
  int zero = 0;
  INGOT_HD constexpr bool is_float8() const { return layout == Layout::kFloat8; }
  INGOT_HD constexpr int code_bytes() const { return has_bytes(layout) ? 2048 : 1024; }  // of a step
  INGOT_HD constexpr int scale_bytes() const { return kTileUnits * 2 * (has_min ? 2 : 1) * (group16 ? 2 : 1); }
  INGOT_HD constexpr int input_bytes() const { return is_float8() ? 272 : 304; }
  constexpr bool operator==(const WeightKind&) const = default;
};

// The constants that are compiled into a kernel.
struct Shape {
  int dim, ffn, n_heads, n_kv_heads, head_dim, rot_dim;
  bool half_split, q_norm, k_norm, biases;
  int act, n_layers, window, kv_block;  // kv_block: tokens of a block of the KV cache
  int n_experts, n_used;                // 0: none; `ffn` is the width of one expert
  bool sigmoid, normalize;              // of the choice of experts
  int n_blocks, shared_bytes;           // of the device
  int panels_at_once;                   // of the KV cache, in a copy of a warp; more leave less room for weights
  int max_rows;                         // of a step: 1 or kMaxRows
  WeightKind kinds[kLayerWeights];
  INGOT_HD constexpr int hidden() const { return n_experts > 0 ? n_used * ffn : ffn; }  // of all experts of a token
  INGOT_HD constexpr int group() const { return n_heads / n_kv_heads; }
  INGOT_HD constexpr bool has_rows() const { return max_rows > 1; }
  // The rows that a product multiplies at once. Rows have their own experts, so these products take a row at a time.
  INGOT_HD constexpr int rows_of(int phase) const { return n_experts > 0 && phase >= kGateUp ? 1 : max_rows; }
  INGOT_HD constexpr int n_splits(int n_rows = 1) const {
    const int n = n_blocks / (n_kv_heads * n_rows);
    return n < 1 ? 1 : n > kMaxSplits ? kMaxSplits : n;
  }
};

INGOT_HD constexpr bool has_float8(const Shape& s) {
  for (const WeightKind& kind : s.kinds)
    if (kind.is_float8()) return true;
  return false;
}
INGOT_HD constexpr int divide_up(int a, int b) { return (a + b - 1) / b; }
INGOT_HD constexpr int up_to(int n, int unit) { return divide_up(n, unit) * unit; }
INGOT_HD constexpr int largest_of(int a, int b) { return a > b ? a : b; }
INGOT_HD constexpr int smallest_of(int a, int b) { return a < b ? a : b; }
INGOT_HD constexpr int row_bytes(int parts) { return parts * 128 + kRowPad; }  // of numbers in a slot
INGOT_HD constexpr int first_weight(int phase) {
  return phase == kQkv ? kWeightQ : phase == kOut ? kWeightOut : phase == kGateUp ? kWeightGate : kWeightDown;
}
INGOT_HD constexpr bool has_norm(int phase) { return phase == kQkv || phase == kGateUp; }
INGOT_HD constexpr int n_weights(int phase) { return phase == kQkv ? 3 : phase == kGateUp ? 2 : 1; }

// A unit is a tile, a pair of tiles of gate and up, or with n_planes = 2 half of a tile's columns. Each half has its
// own plane of sums.
struct PhasePlan {
  int n_in, n_steps, parts, at_once, n_chunks;  // at_once: tiles; n_chunks: of a tile
  int n_units, n_planes, unit_bytes, slot_bytes;
  int batch, n_turns;  // units whose sums are added up at a time; places for these sums
};
// Bytes of the sums of a group of units: [gates, kWarps, 16, rows].
INGOT_HD constexpr int group_bytes(const Shape& s, int phase) {
  return (phase == kGateUp ? 2 : 1) * kWarps * kTileRows * s.rows_of(phase) * 4;
}
INGOT_HD constexpr PhasePlan plan_of(const Shape& s, int phase) {
  PhasePlan p{};
  p.n_in = phase == kOut ? s.n_heads * s.head_dim : phase == kDown ? s.hidden() : s.dim;
  p.n_steps = divide_up(p.n_in, kTileCols);
  p.n_chunks = divide_up(p.n_steps, kWarps);
  p.parts = divide_up(p.n_steps, p.n_chunks);
  p.at_once = kWarps / p.parts;
  const int n_tiles = (phase == kQkv      ? (s.n_heads + 2 * s.n_kv_heads) * s.head_dim
                       : phase == kGateUp ? s.hidden()
                                          : s.dim) /
                      kTileRows;
  const int idle1 = divide_up(n_tiles, s.n_blocks) * s.n_blocks - n_tiles,
            idle2 = divide_up(2 * n_tiles, s.n_blocks) * s.n_blocks - 2 * n_tiles;
  p.n_planes = phase == kQkv && !s.has_rows() && p.at_once == 1 && p.n_chunks % 2 == 0 && idle2 < 2 * idle1 ? 2 : 1;
  p.n_units = n_tiles * p.n_planes;
  for (int i = first_weight(phase); i < first_weight(phase) + n_weights(phase); ++i) {
    const WeightKind& w = s.kinds[i];
    const int rows = kTileRows * row_bytes(p.parts);
    p.unit_bytes = largest_of(
        p.unit_bytes, w.is_float8() ? rows + p.parts * kTileRows * 4 : p.parts * (w.code_bytes() + w.scale_bytes()));
  }
  p.unit_bytes = up_to(p.unit_bytes, 128);
  p.slot_bytes = p.at_once * p.unit_bytes;
  const bool has_rows = s.rows_of(phase) > 1;
  const int n_products = s.max_rows / s.rows_of(phase);  // one after another
  const int max_batches = divide_up(divide_up(n_products * p.n_units, s.n_blocks), p.at_once),
            room = has_rows ? kRowSumBytes / group_bytes(s, phase)
                            : smallest_of(kMaxBatch, kThreads / kTileRows / p.at_once);
  p.batch = smallest_of(max_batches, room) * p.at_once;
  p.n_turns = (max_batches > room && !has_rows) || n_products > 1 ? 2 : 1;
  return p;
}

// Byte offsets in shared memory: two layers of Params, activations or a task of attention, sums, the ring. With several
// rows, the place of the task holds the sums of a product, and behind them the weights of a norm or chunks of the rows;
// if a product takes a row at a time, the row's activations come before the sums.
struct Places {
  int layers, input, sums, norm, ring, n_slots, slot_bytes, end;
};
// Bytes of the weights of a norm: [n_chunks, kWarps, kTileCols].
INGOT_HD constexpr int norm_bytes(const Shape& s) { return plan_of(s, kGateUp).n_chunks * kWarps * kTileCols * 4; }
constexpr int kChunkRowBytes = kWarps * kTileCols * kMaxRows * 2;  // of rows of halves
constexpr int kRingWithExperts = 108 << 10;  // at most; with more, steps were 2 to 3 % slower
constexpr int kLayerBytes = 7 * 32 + 8 * 8;
// A task of attention: sums, rows, statistics of all entries and of all together. A warp's place for sums first holds
// two copies of keys and values. A panel of a copy is up to 128 bytes of 16 rows of the cache.
constexpr int kPanelRoom = kStepKeys * 128, kSwizzleBytes = 1024;
INGOT_HD constexpr int panel_bytes(int row_bytes) { return smallest_of(row_bytes, 128); }
INGOT_HD constexpr int entry_floats(const Shape& s) {
  return largest_of(up_to(s.group() * s.head_dim, kSwizzleBytes / 4), 2 * s.panels_at_once * kPanelRoom / 4);
}
INGOT_HD constexpr int task_bytes(const Shape& s) {
  return 4 * (kWarps * entry_floats(s) + s.group() * s.head_dim) + 2 * (s.group() + 2 * s.max_rows) * s.head_dim +
         8 * (kWarps + 2) * s.group();
}
INGOT_HD constexpr int sum_bytes(const Shape& s, const PhasePlan& p, int phase) {  // of a batch
  return p.batch / p.at_once * group_bytes(s, phase);
}
// Bytes of a row of activations, which each warp has in parts: [kWarps, n_chunks].
INGOT_HD constexpr int staged_bytes(const Shape& s, int phase) {
  return kWarps * plan_of(s, phase).n_chunks * s.kinds[first_weight(phase)].input_bytes();
}
// Bytes in front of the sums of a product.
INGOT_HD constexpr int bytes_before_sums(const Shape& s, int phase) {
  return s.has_rows() && s.rows_of(phase) == 1 ? staged_bytes(s, phase) : 0;
}
INGOT_HD constexpr Places places_of(const Shape& s) {
  Places at{};
  int sums = 0;
  int input = task_bytes(s);
  for (int phase = 0; phase < kPhases; ++phase) {
    const PhasePlan p = plan_of(s, phase);
    const int of_phase = bytes_before_sums(s, phase) + p.n_turns * sum_bytes(s, p, phase);
    input = largest_of(input, !s.has_rows()                          ? staged_bytes(s, phase)
                              : s.rows_of(phase) > 1 && !has_norm(phase) ? of_phase + kChunkRowBytes
                                                                         : of_phase);
    at.slot_bytes = largest_of(at.slot_bytes, p.slot_bytes);
    sums = largest_of(sums, of_phase);
  }
  at.input = up_to(2 * kLayerBytes, kSwizzleBytes);
  at.norm = at.input + sums;
  if (s.has_rows()) {
    at.sums = at.input;
    at.ring = at.input + up_to(largest_of(input, sums + norm_bytes(s)), 128);
  } else {
    at.sums = at.input + up_to(input, 128);
    at.ring = at.sums + sums;
  }
  at.n_slots = smallest_of(s.shared_bytes - at.ring, s.n_experts > 0 ? kRingWithExperts : 0x7FFFFFFF) / at.slot_bytes;
  if (at.n_slots > kMaxSlots) at.n_slots = kMaxSlots;
  at.end = at.ring + at.n_slots * at.slot_bytes;
  return at;
}

// Floats for new values of the residual stream (RouterShare).
INGOT_HD constexpr int fresh_values(const Shape& s) {
  return s.n_experts == 0 ? 1 : 2 * divide_up(s.dim / kTileRows, s.n_blocks) * s.max_rows * kTileRows;
}

// Bytes for chunks of the rows that a product without a norm multiplies.
INGOT_HD constexpr int bytes_behind_sums(const Shape& s, int phase) {
  const Places at = places_of(s);
  return at.ring - at.input - sum_bytes(s, plan_of(s, phase), phase);
}

struct LayerProduct {
  const char *codes, *scales;  // PackedWeight's data and scales
  const float* bias;           // [n_out] or null; only of q, k and v
  float factor;
};
struct Layer {
  LayerProduct products[kLayerWeights];
  const float *attention_norm, *ffn_norm;  // [dim]
  const float *q_norm, *k_norm;            // [head_dim]
  const half* router;                      // [n_experts, dim]
  const float *router_bias, *choice_bias;  // [n_experts] or null, as in layers_step.h
  int64_t kv_layer;
};
static_assert(sizeof(Layer) == kLayerBytes);

constexpr int kMaxLayers = 96;

struct Params {
  CUtensorMap kv_map;  // as made by cache_map(), with panels_at_once
  Layer layers[kMaxLayers];
  int n_rows;
  float* x;  // [n_rows, x_stride]: the residual stream, input and output
  int64_t x_stride;
  const float* angles;  // [n_rows, angle_stride]
  int64_t angle_stride;
  void* kv;
  int kv_blocks;
  float eps, head_eps, score_scale;  // score_scale includes the factor log2(e)
  float route_scale;
  uint64_t codebook_low, codebook_high;
  const int32_t *positions, *token_seq, *q_start, *block_table, *max_blocks;  // as in DeviceBatch
  // Scratch in memory.
  unsigned* barrier;
  float* heads;     // [n_rows, n_planes, (n_heads + 2 n_kv_heads) head_dim]: sums of q, k and v
  half* attended;   // [n_rows, n_heads * head_dim]
  half* hidden;     // [n_rows, ffn]; with experts [n_rows, n_used, ffn], each part times the weight of its expert
  int64_t* logits;  // [n_rows, n_experts]: sums of the products of the router, in units of 2^-28
  float* squares;   // [dim / 16, max_rows]: of the residual stream
  float* parts;     // [n_rows, n_kv_heads, n_splits, group, head_dim]
  float2* stats;    // [n_rows, n_kv_heads, n_splits, group]: maximum, total
  unsigned* ended;  // [n_rows, n_kv_heads]: barriers of the splits of a head
};

}  // namespace ingot::cuda::grid
