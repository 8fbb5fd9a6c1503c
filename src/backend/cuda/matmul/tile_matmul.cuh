// The kernel of tile_matmul.cu. A block handles tiles of 16 rows of weights, one or two for each of its eight warps,
// and up to 64 rows of activations. It processes their columns in steps that are prefetched to shared memory. Codes
// become halves in registers: exact integers, times the scale. With `kCodes`, the scales multiply sums instead.
//
// If there are fewer blocks than the device can hold, a cluster of blocks shares the columns (Hopper and newer). Each
// block stores its sums in its shared memory, and adds up the sums of all blocks for a share of the outputs, always in
// the same order.
#pragma once
#include "backend/cuda/matmul/matvec_tiles.cuh"
#include "backend/cuda/matmul/tile_step.cuh"

namespace ingot::cuda::tile_kernel {

using namespace matvec_step;
using namespace tile_step;
using matvec_tiles::job_of;
using matvec_tiles::Params;
using matvec_tiles::pick;
using matvec_tiles::Shape;
using matvec_tiles::shape_of;

constexpr int kWarps = 8;     // in a block
constexpr int kMaxSplit = 8;  // blocks in a cluster; every device with clusters allows 8

// kTokenTiles: tiles of 8 rows of activations of a block. kPerWarp: tiles of weights of a warp.
template <class K, int kTokenTiles, int kPerWarp>
struct Stage {
  static constexpr int kTokens = 8 * kTokenTiles;
  static constexpr int kWeights = kTokens * kInputRowBytes<K>;
  static constexpr int kBytes = kWeights + kWarps * kPerWarp * K::kSlotBytes;
};

// Copies kCols columns of the block's rows of activations, with zeros from column n_in on.
template <class K, int kTokens, Shape kShape>
__device__ __forceinline__ void copy_input(uint32_t to, const Params& p, int first_token, int column) {
  constexpr int kPerRow = K::kCols / 8, kRowsAtOnce = 32 * kWarps / kPerRow;
  const int row = static_cast<int>(threadIdx.x) / kPerRow, k = static_cast<int>(threadIdx.x) % kPerRow * 8;
  if (kTokens < kRowsAtOnce && row >= kTokens) return;
  const int n_in = shape_of<kShape>(p).n_in;
  const bool in = (kShape.n_in > 0 && kShape.n_in % K::kCols == 0) || column + k < n_in;
  const half* from = p.x + (in ? column + k : 0);
#pragma unroll
  for (int r = 0; r < kTokens; r += kRowsAtOnce)
    copy16(to + (row + r) * kInputRowBytes<K> + 2 * k, from + min(first_token + row + r, p.n - 1) * p.x_stride, in);
}

template <int kTokenTiles, int kPerWarp>
using Sums = float[kPerWarp][kTokenTiles][4];  // of a warp's tiles

// The j-th tile of a warp; with a gate, a tile of the j-th weight.
template <int kPerWarp>
__device__ __forceinline__ int tile_of(bool gated, int warp, int j) {
  const int at = static_cast<int>(blockIdx.x) * kWarps + warp;
  return gated ? at : kPerWarp * at + j;
}

// Writes a lane's sums of one token tile. If the sums are added to y, all values of y are read before any is written.
template <class Y, Shape kShape, int kPerWarp>
__device__ __forceinline__ void write_sums(const Params& p, float (&sums)[kPerWarp][4], int warp, int first_token,
                                           int lane) {
  const Shape s = shape_of<kShape>(p);
  const bool gated = kPerWarp == 2 && s.act >= 0;
  Y* places[kPerWarp][4];  // null: not written
#pragma unroll
  for (int j = 0; j < kPerWarp; ++j) {
    const int tile = tile_of<kPerWarp>(gated, warp, j);
    const int at = gated ? j : job_of(s, min(tile, s.n_tiles - 1));
    const matvec_tiles::Job& job = p.jobs[at];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int token = first_token + 2 * (lane % 4) + e % 2;
      const int64_t row = int64_t{tile - pick(s.first_tile, at)} * kTileRows + lane / 4 + e / 2 * 8;
      const bool in = tile < s.n_tiles && row < pick(s.n_out, at) && token < p.n;
      places[j][e] = in ? static_cast<Y*>(job.y) + token * job.y_stride + row : nullptr;
      if (in) sums[j][e] = sums[j][e] * job.w.factor + (s.has_bias && job.bias ? job.bias[row] : 0.0f);
      if (in && s.accumulate) sums[j][e] += to_float(*places[j][e]);
    }
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    if (gated) {
      if (places[0][e]) *places[0][e] = from_float<Y>(act_mul(sums[0][e], sums[kPerWarp - 1][e], s.act));
      continue;
    }
#pragma unroll
    for (int j = 0; j < kPerWarp; ++j)
      if (places[j][e]) *places[j][e] = from_float<Y>(sums[j][e]);
  }
}

// Adds up a lane's sums of one token tile, from all blocks of the cluster. All loads are in flight at once. The sums of
// the warp's tiles are `stride` bytes apart.
template <int kPerWarp>
__device__ __forceinline__ void add_up(float (&sums)[kPerWarp][4], uint32_t address, int stride, int n_blocks) {
  float4 parts[kMaxSplit][kPerWarp];
#pragma unroll
  for (int rank = 0; rank < kMaxSplit; ++rank)
#pragma unroll
    for (int j = 0; j < kPerWarp; ++j)
      if (rank < n_blocks) parts[rank][j] = load_of_block(address + j * stride, rank);
#pragma unroll
  for (int rank = 0; rank < kMaxSplit; ++rank)
#pragma unroll
    for (int j = 0; j < kPerWarp; ++j) {
      if (rank >= n_blocks) continue;
      const float4& part = parts[rank][j];
      sums[j][0] += part.x, sums[j][1] += part.y, sums[j][2] += part.z, sums[j][3] += part.w;
    }
}

// Adds up the sums of all blocks of a cluster, which are to be multiplied by `factor`. The blocks divide the work: a
// unit is what one warp has computed of one token tile.
template <int kTokenTiles, int kPerWarp, Shape kShape>
__device__ __forceinline__ void finish(const Params& p, const Sums<kTokenTiles, kPerWarp>& acc, float factor,
                                       float* shared, int first_token) {
  const Shape s = shape_of<kShape>(p);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // [warp, tile, token tile, lane]: four sums
  const auto place = [&](int of_warp, int j, int i) {
    return shared + (((of_warp * kPerWarp + j) * kTokenTiles + i) * 32 + lane) * 4;
  };
  __syncthreads();  // the stages are no longer used
#pragma unroll
  for (int j = 0; j < kPerWarp; ++j)
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) {
      const float(&v)[4] = acc[j][i];
      *reinterpret_cast<float4*>(place(warp, j, i)) =
          make_float4(v[0] * factor, v[1] * factor, v[2] * factor, v[3] * factor);
    }
  if (s.split > 1) cluster_barrier();
  const int n_units = kWarps * min(kTokenTiles, (p.n - first_token + 7) / 8);
  for (int unit = static_cast<int>(blockIdx.y) + s.split * warp; unit < n_units; unit += s.split * kWarps) {
    const int of_warp = unit % kWarps, i = unit / kWarps;
    float sums[kPerWarp][4] = {};
    if (s.split > 1) {
      add_up(sums, shared_address(place(of_warp, 0, i)), kTokenTiles * 512, s.split);
    } else {
#pragma unroll
      for (int j = 0; j < kPerWarp; ++j) {
        const float4 v = *reinterpret_cast<const float4*>(place(of_warp, j, i));
        sums[j][0] = v.x, sums[j][1] = v.y, sums[j][2] = v.z, sums[j][3] = v.w;
      }
    }
    if (s.y_f32) {
      write_sums<float, kShape>(p, sums, of_warp, first_token + 8 * i, lane);
    } else {
      write_sums<half, kShape>(p, sums, of_warp, first_token + 8 * i, lane);
    }
  }
  if (s.split > 1) cluster_barrier();  // no block ends while other blocks read its sums
}

template <class K, int kTokenTiles, int kPerWarp, bool kCodes, Shape kShape>
__device__ __forceinline__ void run(const Params& p) {
  using S = Stage<K, kTokenTiles, kPerWarp>;
  extern __shared__ __align__(128) char shared[];
  __shared__ uint32_t table[K::kLayout == Layout::kCodebook4 ? 256 : 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Shape s = shape_of<kShape>(p);
  const int begin = static_cast<int>(blockIdx.y) * s.n_steps / s.split,
            end = (static_cast<int>(blockIdx.y) + 1) * s.n_steps / s.split;
  const int first_token = static_cast<int>(blockIdx.z) * S::kTokens;
  const bool gated = kPerWarp == 2 && s.act >= 0;
  let_next_start();

  const auto source = [&](int j) {
    const int tile = min(tile_of<kPerWarp>(gated, warp, j), s.n_tiles - 1), job = gated ? j : job_of(s, tile);
    return Source<K>(p.jobs[job].w, tile - pick(s.first_tile, job), lane, begin);
  };
  Source<K> sources[2] = {source(0), source(kPerWarp - 1)};
  const uint32_t stages = shared_address(shared);
  const auto copy_weights = [&](int stage, int step) {
#pragma unroll
    for (int j = 0; j < kPerWarp; ++j)
      sources[j].copy_next(stages + stage * S::kBytes + S::kWeights + (kPerWarp * warp + j) * K::kSlotBytes, lane,
                           step < end);
  };
  if (p.decoded) wait_for_previous();
  for (int i = 0; i < s.n_stages - 1; ++i) copy_weights(i, begin + i);
  if constexpr (K::kLayout == Layout::kCodebook4)
    kCodes ? matvec_step::fill_table(table, p.jobs[0].w) : fill_levels(table, p.jobs[0].w);
  wait_for_previous();
  for (int i = 0; i < s.n_stages - 1; ++i) {
    if (begin + i < end)
      copy_input<K, S::kTokens, kShape>(stages + i * S::kBytes, p, first_token, (begin + i) * K::kCols);
    end_copies();
  }

  const half2 offset = __float2half2_rn(1024.0f + static_cast<float>(s.zero));
  Sums<kTokenTiles, kPerWarp> acc = {};
  const auto copy = [&](int stage, int step) {
    if (step < end) {
      copy_weights(stage, step);
      copy_input<K, S::kTokens, kShape>(stages + stage * S::kBytes, p, first_token, step * K::kCols);
    }
    end_copies();
  };
  run_steps(begin, end, s.n_stages, copy, [&](int stage) {
    const char *at = shared + stage * S::kBytes, *slots = at + S::kWeights + kPerWarp * warp * K::kSlotBytes;
    if constexpr (kCodes) {
      multiply_codes<K>(acc, slots, at, lane, matvec_step::moving_pair<K>(s.zero), table);
    } else {
      multiply_step<K>(acc, slots, at, lane, offset, table);
    }
  });
  float factor = 1;
  if constexpr (kCodes) factor = K::kPerLevel;
  finish<kTokenTiles, kPerWarp, kShape>(p, acc, factor, reinterpret_cast<float*>(shared), first_token);
}

}  // namespace ingot::cuda::tile_kernel
