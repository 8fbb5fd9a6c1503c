// How one block sorts the rows of a step by expert, for experts/route.cu and router_rows.cu.
#pragma once
#include "backend/cuda/experts/experts.h"
#include "backend/cuda/launch.cuh"

namespace ingot::cuda {

// Ints of shared memory that sort_rows() needs.
__host__ __device__ inline int sort_ints(int n_experts) { return 3 * n_experts; }

// All threads of a block count the rows, sum up the counts, and scatter. ids: [n_rows]; rows with id -1 are left out.
// The order of an expert's rows varies, but does not matter, because a row's result does not depend on the other rows.
// The ids are read from the L2 cache, because other blocks may have just written them.
__device__ inline void sort_rows(const ExpertOrder& out, const int32_t* ids, int64_t n_rows, int n_experts,
                                 int* shared) {
  int *counts = shared, *starts = counts + n_experts, *tile_starts = starts + n_experts;  // first rows, first tiles
  const int n_threads = static_cast<int>(blockDim.x);
  for (int e = threadIdx.x; e < n_experts; e += n_threads) counts[e] = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < n_rows; i += n_threads)
    if (const int e = __ldcg(ids + i); e >= 0) atomicAdd(&counts[e], 1);
  __syncthreads();
  if (threadIdx.x < 32) {
    int row = 0, tile = 0;
    for (int first = 0; first < n_experts; first += 32) {
      const int e = first + static_cast<int>(threadIdx.x), n = e < n_experts ? counts[e] : 0;
      int rows = n, tiles = (n + out.tile_rows - 1) / out.tile_rows;
      if (e < out.n_first) tiles = max(tiles - 1, 0);
      const int n_tiles = tiles;
#pragma unroll
      for (int s = 1; s < 32; s *= 2) {
        const int rows_before = __shfl_up_sync(0xFFFFFFFFu, rows, s),
                  tiles_before = __shfl_up_sync(0xFFFFFFFFu, tiles, s);
        if (static_cast<int>(threadIdx.x) >= s) rows += rows_before, tiles += tiles_before;
      }
      if (e < n_experts) starts[e] = row + rows - n, tile_starts[e] = out.n_first + tile + tiles - n_tiles;
      row += __shfl_sync(0xFFFFFFFFu, rows, 31);
      tile += __shfl_sync(0xFFFFFFFFu, tiles, 31);
    }
    if (threadIdx.x == 0) *out.n_tiles = out.n_first + tile;
  }
  __syncthreads();
  for (int e = threadIdx.x; e < n_experts; e += n_threads) {
    int done = 0, tile = tile_starts[e];
    const auto add = [&](int at) {
      out.tiles[at] = {e, starts[e] + done, min(out.tile_rows, counts[e] - done)};
      done += out.tile_rows;
    };
    if (e < out.n_first) add(e);
    while (done < counts[e]) add(tile++);
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < n_rows; i += n_threads)
    if (const int e = __ldcg(ids + i); e >= 0) out.order[atomicAdd(&starts[e], 1)] = static_cast<int32_t>(i);
}

}  // namespace ingot::cuda
