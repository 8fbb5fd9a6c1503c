// How cluster/layers.cu divides a layer: the tiles of 16 rows that a block has in each of the four products, the steps
// of 128 columns of these tiles for each warp, and all places in shared memory.
//
// If there are enough warps for all columns, a warp uses the same columns in all its tiles, so that it converts a part
// of the activations to integers only once. The steps of all tiles of a block in a layer, in order of use, are called
// units. Units are copied to a ring, one tile's units at a time.
#pragma once
#include "backend/cuda/cluster/layers.h"
#include "backend/cuda/launch.cuh"

namespace ingot::cuda::cluster {

constexpr int kMaxBlocks = 16;  // in a cluster
constexpr int kWarps = 12;      // in a block; with more warps, each would have too few registers
constexpr int kThreads = 32 * kWarps;
constexpr int kHead = 64;  // columns of a head
constexpr int kHeadTiles = kHead / kTileRows;
constexpr int kMaxSlots = 256;  // in the ring
constexpr int kMaxHeads = 4 * kThreads / kHead;

enum Phase { kQkv, kOut, kGateUp, kDown, kPhases };
// The data that blocks send: the residual stream before and after attention, heads, parts of attention, the hidden row.
enum Sent { kInput, kHeads, kParts, kMiddle, kHidden, kSents };

struct alignas(16) Share {
  int first_k, first_row, row_step, n_rows;  // of a warp; rows are tiles of 16 rows, numbered within the block
};
struct alignas(16) Extent {
  int k_tiles, n_rows, first_row, first_unit;  // of a block in a phase; the last two count within the layer
};
struct alignas(16) Row {
  int weight, first_tile, k_tiles, first_unit;  // first_tile: of the weight's steps
};

struct Params {
  LayersStep step;
  ClusterTurns* turns;  // null: no token follows another token of the step
  int n_blocks;         // in a cluster
  int n_slots, code_stride, scale_stride, group, n_splits, block_shift;  // a KV block has 1 << block_shift tokens
  // Byte offsets in shared memory.
  int layers, shares, extents, rows, fetcher, row, barriers, angles, input, middle, hidden, attended, heads, parts,
      entries, stage, scales, codes, end;
  int sums[2], squares[2];  // of a product and of the next product, in turn
};

__host__ __device__ inline int up_to(int n, int unit) { return (n + unit - 1) / unit * unit; }
__host__ __device__ inline int n_tiles(int rows) { return (rows + kTileRows - 1) / kTileRows; }
// How many of n items the block of this rank gets if they are dealt out in turn.
__host__ __device__ inline int dealt(int n, int rank, int ranks) { return n > rank ? (n - rank - 1) / ranks + 1 : 0; }

// A block's rows of qkv are whole heads of queries, keys or values. Its rows of gate and up alternate: one tile of
// gate, one tile of up.
__host__ __device__ inline Extent extent_of(const LayersShape& s, int phase, int rank, int n_blocks) {
  const int columns = phase == kDown ? s.ffn : phase == kOut ? s.n_heads * kHead : s.dim;
  const int things = dealt(phase == kQkv      ? s.n_heads + 2 * s.n_kv_heads
                           : phase == kGateUp ? n_tiles(s.ffn)
                                              : n_tiles(s.dim),
                           rank, n_blocks);
  return {(columns + kTileCols - 1) / kTileCols,
          things * (phase == kQkv      ? kHeadTiles
                    : phase == kGateUp ? 2
                                       : 1),
          0, 0};
}

__host__ __device__ inline Share share_of(const Extent& e, int warp) {
  const bool wide = e.k_tiles > kWarps;  // then the warp's next step is kWarps further
  const int step = wide ? 1 : kWarps / e.k_tiles, row = wide ? 0 : warp / e.k_tiles;
  return {wide ? warp : warp % e.k_tiles, row, step, row < step ? dealt(e.n_rows, row, step) : 0};
}

// The weight (in the low three bits) and the tile of that weight, for a row of the block.
__host__ __device__ inline int tile_of(const LayersShape& s, int phase, int rank, int n_blocks, int row) {
  if (phase == kOut || phase == kDown) return (phase == kOut ? kWeightOut : kWeightDown) | (rank + n_blocks * row) << 3;
  if (phase == kGateUp) return (kWeightGate + row % 2) | (rank + n_blocks * (row / 2)) << 3;
  const int head = rank + n_blocks * (row / kHeadTiles), tile = row % kHeadTiles;
  if (head < s.n_heads) return kWeightQ | (head * kHeadTiles + tile) << 3;
  const int other = head - s.n_heads;
  return (kWeightK + other / s.n_kv_heads) | (other % s.n_kv_heads * kHeadTiles + tile) << 3;
}

__host__ __device__ inline int code_bytes(bool eight) { return kTileUnits * (eight ? 32 : 16); }
__host__ __device__ inline int scale_bytes(bool has_min) { return kTileUnits * (has_min ? 4 : 2); }

// Floats in a block's part for a group of heads: sums [group, kHead], then maxima and totals [group, 2].
__host__ __device__ inline int part_floats(int group) { return up_to(group * (kHead + 2), 4); }

// One thread's view of its block.
struct Block {
  const Params& p;
  char* const shared;
  const uint32_t base;  // the address of shared
  const int rank, warp, lane;

  // The same block, for code that should compute its own addresses. Without this, the compiler keeps dozens of
  // addresses in registers.
  __device__ __forceinline__ Block anew() const {
    int none;
    asm volatile("mov.u32 %0, 0;" : "=r"(none));
    return {p, shared + none, base + static_cast<uint32_t>(none), rank + none, warp + none, lane + none};
  }

  template <class T>
  __device__ __forceinline__ T* at(int place) const {
    return reinterpret_cast<T*>(shared + place);
  }
  __device__ __forceinline__ const StepLayer& layer(int i) const { return at<StepLayer>(p.layers)[i]; }
  __device__ __forceinline__ const Extent& extent(int phase) const { return at<Extent>(p.extents)[phase]; }
  __device__ __forceinline__ uint32_t barrier(int sent) const { return base + p.barriers + 8 * sent; }
  // The barrier for the phase's units. Units arrive once a layer, because the ring never holds more than one layer's
  // units.
  __device__ __forceinline__ uint32_t phase_barrier(int phase) const { return barrier(kSents + phase); }
};

}  // namespace ingot::cuda::cluster
