// The share of a block in a layer (shape.h), and the barriers.
#pragma once
#include "backend/cuda/device.cuh"
#include "backend/cuda/grid/shape.h"

namespace ingot::cuda::grid {

// The units [first, end) of this block.
struct Units {
  int first, end;
  __device__ __forceinline__ Units(int n_units, int n_blocks)
      : first(static_cast<int>(static_cast<unsigned>(n_units) * blockIdx.x / static_cast<unsigned>(n_blocks))),
        end(static_cast<int>(static_cast<unsigned>(n_units) * (blockIdx.x + 1) / static_cast<unsigned>(n_blocks))) {}
};

// The units of a product that takes a row at a time: those of the first row, then those of the next. A run is the part
// of a block's units with the same row.
struct Run {
  int row, first, end;  // units of the row
};
template <class C, int kPhase>
struct RowUnits : Units {
  static constexpr int kUnits = plan_of(C::kShape, kPhase).n_units;
  __device__ __forceinline__ explicit RowUnits(int n_rows)
      : Units(C::kShape.has_rows() ? kUnits * n_rows : kUnits, C::kShape.n_blocks) {}
  // The run that starts at a unit.
  __device__ __forceinline__ Run run(int unit) const {
    const int row = C::kShape.has_rows() ? unit / kUnits : 0, before = row * kUnits;
    return {row, unit - before, min(end - before, kUnits)};
  }
  static __device__ __forceinline__ int end_of(const Run& run) { return run.row * kUnits + run.end; }
};

// The weight of a unit, and the tile of that weight.
struct Place {
  int weight, tile;
};
template <class C, int kPhase>
__device__ __forceinline__ Place place_of(int unit) {
  constexpr PhasePlan kPlan = plan_of(C::kShape, kPhase);
  const int tile = kPlan.n_planes == 1 ? unit : unit / 2;
  if constexpr (kPhase != kQkv) return {first_weight(kPhase), tile};
  constexpr int kQ = C::kShape.n_heads * C::kShape.head_dim / kTileRows,
                kK = C::kShape.n_kv_heads * C::kShape.head_dim / kTileRows;
  return tile < kQ        ? Place{kWeightQ, tile}
         : tile < kQ + kK ? Place{kWeightK, tile - kQ}
                          : Place{kWeightV, tile - kQ - kK};
}
// The first chunk of a unit.
template <class C, int kPhase>
__device__ __forceinline__ int first_chunk(int unit) {
  constexpr PhasePlan kPlan = plan_of(C::kShape, kPhase);
  return kPlan.n_planes == 1 ? 0 : unit % 2 * (kPlan.n_chunks / 2);
}

// The place of a column in a row of halves that this weight multiplies. With several rows, the 8 columns of a lane are
// neighbours.
template <class C, int kWeight>
__device__ __forceinline__ int place_in_row(int column) {
  if constexpr (!C::kShape.has_rows() || C::kShape.kinds[kWeight].is_float8()) return column;
  return column / 32 * 32 + column % 16 / 4 * 8 + column % 32 / 16 * 4 + column % 4;
}

// A barrier of the warps that compute.
__device__ __forceinline__ void sync_block() { asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory"); }

// A barrier for blocks, one of which is the first. One thread of each block arrives and waits. Afterwards the thread
// sees everything that threads of the other blocks wrote before they arrived, but not through the L1 cache. The highest
// bit of the word changes when the last block arrives. arrive_grid() returns the value that await_grid() needs.
__device__ __forceinline__ unsigned arrive_grid(unsigned* barrier, int n_blocks, bool is_first) {
  const unsigned add = is_first ? 0x80000000u - static_cast<unsigned>(n_blocks - 1) : 1u;
  unsigned before;
  asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;" : "=r"(before) : "l"(barrier), "r"(add) : "memory");
  return before;
}
__device__ __forceinline__ void await_grid(const unsigned* barrier, unsigned before) {
  unsigned now;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(barrier) : "memory");
  } while (((before ^ now) & 0x80000000u) == 0);
}
// The barrier for all threads that compute. meanwhile() runs after the block has arrived.
template <class Meanwhile>
__device__ __forceinline__ void sync_grid(unsigned* barrier, int n_blocks, Meanwhile&& meanwhile) {
  sync_block();
  const unsigned before = threadIdx.x == 0 ? arrive_grid(barrier, n_blocks, blockIdx.x == 0) : 0;
  meanwhile();
  if (threadIdx.x == 0) await_grid(barrier, before);
  sync_block();
}

// The experts of a row, in shared memory.
struct Choice {
  int experts[kMaxUsed];
  float weights[kMaxUsed];
};

}  // namespace ingot::cuda::grid
