// Shared by tiles.cu, groups.cu and stream.cu: products of tiles of rows with the matrices of their experts
// (ExpertOrder).
#pragma once
#include "backend/cuda/experts/experts.h"
#include "backend/cuda/launch.cuh"

namespace ingot::cuda::expert_tiles_kernel {

struct TileParams {
  PackedWeight w[2];
  const float* bias[2];
  const half* x;
  int64_t x_stride;
  int rows_per_x;  // rows that share a row of x
  ExpertOrder order;
  int n_in, n_steps, n_tiles, n_stages;  // n_tiles: tiles of 16 outputs
  void* y;
  int64_t y_stride;
  bool y_f32, y_packs;  // y_packs: halves go to y 8 at a time
  bool y_arranged;      // y is in the order of the codes (groups.cu)
  int act;

  __device__ __forceinline__ int64_t row_of_x(int row) const { return row / rows_per_x; }
};

__device__ __forceinline__ PackedWeight matrix_of(const PackedWeight& w, int64_t expert) {
  PackedWeight own = w;
  own.data = static_cast<const char*>(w.data) + expert * w.expert_bytes;
  own.scales = static_cast<const char*>(w.scales) + expert * w.expert_scale_bytes;
  return own;
}

// Eight neighbouring outputs of a row, from `out` on, computed from the sums of the tile. `left` of them exist.
__device__ __forceinline__ void outputs_of(float (&v)[8], const TileParams& p, const float* sums, int n_wide,
                                           int64_t expert, int64_t out, int64_t left) {
  float both[2][8];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    if (j == 1 && p.act < 0) break;
    const float4* from = reinterpret_cast<const float4*>(sums + j * n_wide);
    *reinterpret_cast<float4*>(both[j]) = from[0], *reinterpret_cast<float4*>(both[j] + 4) = from[1];
    const float* bias = p.bias[j] == nullptr ? nullptr : p.bias[j] + expert * p.w[0].n_out + out;
#pragma unroll
    for (int i = 0; i < 8; ++i) both[j][i] = both[j][i] * p.w[j].factor + (bias != nullptr && i < left ? bias[i] : 0);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = p.act >= 0 ? act_mul(both[0][i], both[1][i], p.act) : both[0][i];
}

// Eight neighbours as halves; with y_arranged, as two runs of four, of which the second is 8 halves after the first.
__device__ __forceinline__ void write_halves(half* y, const float (&v)[8], bool arranged, int64_t out) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    words[i] = bits_of(__halves2half2(from_float<half>(v[2 * i]), from_float<half>(v[2 * i + 1])));
  if (!arranged) {
    *reinterpret_cast<uint4*>(y) = make_uint4(words[0], words[1], words[2], words[3]);
    return;
  }
  half* const first = y - out % 16 / 8 * 4;
  *reinterpret_cast<uint2*>(first) = make_uint2(words[0], words[2]);
  *reinterpret_cast<uint2*>(first + 8) = make_uint2(words[1], words[3]);
}

// Writes the sums of a block, [tile.n, stride], 8 neighbours at a time to y: n_wide outputs, from blockIdx.x * n_wide
// on. With a gate, the sums for `up` follow those for `gate`. rows: the rows of the tile. thread: of n_threads.
__device__ __forceinline__ void write_sums(const TileParams& p, const RowTile& tile, const int32_t* rows,
                                           const float* sums, int stride, int n_wide, int thread, int n_threads) {
  const int n_pieces = n_wide / 8, c = thread % n_pieces * 8;
  const int64_t out = int64_t{blockIdx.x} * n_wide + c, left = p.w[0].n_out - out;
  if (left <= 0) return;
  for (int token = thread / n_pieces; token < tile.n; token += n_threads / n_pieces) {
    float v[8];
    outputs_of(v, p, sums + token * stride + c, n_wide, tile.expert, out, left);
    const int64_t at = rows[token] * p.y_stride + out;
    if (p.y_packs) {
      write_halves(static_cast<half*>(p.y) + at, v, p.y_arranged, out);
      continue;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i >= left) break;
      if (p.y_f32) {
        static_cast<float*>(p.y)[at + i] = v[i];
      } else {
        static_cast<half*>(p.y)[at + i] = from_float<half>(v[i]);
      }
    }
  }
}

}  // namespace ingot::cuda::expert_tiles_kernel

namespace ingot::cuda {

void expert_groups(expert_tiles_kernel::TileParams p, Device& device);  // groups.cu; p.n_steps is computed there
// stream.cu, which sets p.n_steps, too. knows_order: the order may be read before the previous kernel has ended.
void stream_experts(const expert_tiles_kernel::TileParams& p, bool knows_order, Device& device);

}  // namespace ingot::cuda
