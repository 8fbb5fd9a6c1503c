// Shared by tiles.cu and groups.cu: products of tiles of rows with the matrices of their experts (ExpertOrder).
#pragma once
#include "backend/cuda/device.cuh"
#include "backend/cuda/experts/experts.h"

namespace ingot::cuda::expert_tiles_kernel {

struct TileParams {
  PackedWeight w[2];
  const float* bias[2];
  const half* x;
  int64_t x_stride, x_rows, n_rows;
  ExpertOrder order;
  int n_in, n_steps, n_tiles, n_stages;  // n_tiles: tiles of 16 outputs
  void* y;
  int64_t y_stride;
  bool y_f32, y_packs;  // y_packs: halves go to y 16 bytes at a time
  int act;

  __device__ __forceinline__ int64_t row_of_x(int row) const { return row * x_rows / n_rows; }
};

__device__ __forceinline__ PackedWeight matrix_of(const PackedWeight& w, int64_t expert) {
  PackedWeight own = w;
  own.data = static_cast<const char*>(w.data) + expert * w.expert_bytes;
  own.scales = static_cast<const char*>(w.scales) + expert * w.expert_scale_bytes;
  return own;
}

// One output of a row, computed from the sums of the tile.
__device__ __forceinline__ float value_of(const TileParams& p, const float* sums, int c, int n_wide, int64_t expert,
                                          int64_t out) {
  float value[2] = {};
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    if (j == 1 && p.act < 0) break;
    value[j] = sums[j * n_wide + c] * p.w[j].factor;
    if (p.bias[j] != nullptr) value[j] += p.bias[j][expert * p.w[0].n_out + out];
  }
  return p.act >= 0 ? act_mul(value[0], value[1], p.act) : value[0];
}

// Writes the sums of a block, [tile.n, stride], 8 neighbours at a time to y: n_wide outputs, from blockIdx.x * n_wide
// on. With a gate, the sums for `up` follow those for `gate`. rows: the rows of the tile. thread: of n_threads.
__device__ __forceinline__ void write_sums(const TileParams& p, const RowTile& tile, const int32_t* rows,
                                           const float* all_sums, int stride, int n_wide, int thread, int n_threads) {
  const int n_pieces = n_wide / 8, c = thread % n_pieces * 8;
  const int64_t out = int64_t{blockIdx.x} * n_wide + c, left = p.w[0].n_out - out;
  if (left <= 0) return;
  for (int token = thread / n_pieces; token < tile.n; token += n_threads / n_pieces) {
    const float* sums = all_sums + token * stride;
    const int64_t at = rows[token] * p.y_stride + out;
    if (p.y_packs) {
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float first = value_of(p, sums, c + 2 * i, n_wide, tile.expert, out + 2 * i);
        const float second = value_of(p, sums, c + 2 * i + 1, n_wide, tile.expert, out + 2 * i + 1);
        words[i] = bits_of(__halves2half2(from_float<half>(first), from_float<half>(second)));
      }
      *reinterpret_cast<uint4*>(static_cast<half*>(p.y) + at) = make_uint4(words[0], words[1], words[2], words[3]);
      continue;
    }
    for (int i = 0; i < min(int64_t{8}, left); ++i) {
      const float value = value_of(p, sums, c + i, n_wide, tile.expert, out + i);
      if (p.y_f32) {
        static_cast<float*>(p.y)[at + i] = value;
      } else {
        static_cast<half*>(p.y)[at + i] = from_float<half>(value);
      }
    }
  }
}

}  // namespace ingot::cuda::expert_tiles_kernel

namespace ingot::cuda {

// groups.cu: tiles of 64 rows on Hopper, with quantized weights.
bool can_group_experts(const PackedWeight& w, const ExpertOrder& order, const Device& device);
void expert_groups(expert_tiles_kernel::TileParams p, Device& device);

}  // namespace ingot::cuda
