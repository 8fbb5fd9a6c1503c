// The kernel of tile_matmul.cu. A block handles sixteen tiles of 16 rows of weights, two for each warp, and up to 64
// rows of activations. It processes their columns in steps that are prefetched to shared memory. Codes become halves in
// registers: exact integers, times the scale.
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

constexpr int kWarps = 8, kTiles = 2 * kWarps;  // in a block

template <class K, int kTokenTiles>
struct Stage {
  static constexpr int kTokens = 8 * kTokenTiles;
  static constexpr int kWeights = kTokens * kInputRowBytes<K>;
  static constexpr int kBytes = kWeights + kTiles * K::kSlotBytes;
  // A fourth stage makes products of few rows a tenth faster, if two blocks still fit on a multiprocessor of Hopper.
  static constexpr int kMaxStages = kTokenTiles == 1 && 8 * kBytes <= (224 << 10) ? 4 : 3;
};

// Copies kCols columns of the block's rows of activations, with zeros from column n_in on.
template <class K, int kTokenTiles, Shape kShape>
__device__ __forceinline__ void copy_input(uint32_t to, const Params& p, int first_token, int column) {
  using S = Stage<K, kTokenTiles>;
  constexpr int kPerRow = K::kCols / 8, kRowsAtOnce = 32 * kWarps / kPerRow;
  const int row = static_cast<int>(threadIdx.x) / kPerRow, k = static_cast<int>(threadIdx.x) % kPerRow * 8;
  if (S::kTokens < kRowsAtOnce && row >= S::kTokens) return;
  const int n_in = shape_of<kShape>(p).n_in;
  const bool in = (kShape.n_in > 0 && kShape.n_in % K::kCols == 0) || column + k < n_in;
  const half* from = p.x + (in ? column + k : 0);
#pragma unroll
  for (int r = 0; r < S::kTokens; r += kRowsAtOnce)
    copy16(to + (row + r) * kInputRowBytes<K> + 2 * k, from + min(first_token + row + r, p.n - 1) * p.x_stride, in);
}

template <int kTokenTiles>
using Sums = float[2][kTokenTiles][4];  // of a warp's two tiles

// The j-th tile of a warp; with a gate, a tile of the j-th weight.
__device__ __forceinline__ int tile_of(bool gated, int warp, int j) {
  return static_cast<int>(blockIdx.x) * (gated ? kWarps : kTiles) + (gated ? warp : 2 * warp + j);
}

// Writes a lane's sums of one token tile. If the sums are added to y, all values of y are read before any is written.
template <class Y, Shape kShape>
__device__ __forceinline__ void write_sums(const Params& p, float (&sums)[2][4], int warp, int first_token, int lane) {
  const Shape s = shape_of<kShape>(p);
  const bool gated = s.act >= 0;
  Y* places[2][4];  // null: not written
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int tile = tile_of(gated, warp, j);
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
      if (places[0][e]) *places[0][e] = from_float<Y>(act_mul(sums[0][e], sums[1][e], s.act));
    } else {
      if (places[0][e]) *places[0][e] = from_float<Y>(sums[0][e]);
      if (places[1][e]) *places[1][e] = from_float<Y>(sums[1][e]);
    }
  }
}

// Reads a float from the shared memory of the cluster's block with this rank.
__device__ __forceinline__ float load_of_block(uint32_t address, int rank) {
  float v = 0;
#if __CUDA_ARCH__ >= 900
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(there));
#endif
  return v;
}

// Adds up a lane's sums of one token tile, from kRanks blocks of the cluster. All loads are in flight at once.
// at(n) is the place of sum n.
template <int kRanks, class At>
__device__ __forceinline__ void add_up(float (&sums)[2][4], uint32_t address, At&& at) {
  float parts[kRanks][8];
#pragma unroll
  for (int rank = 0; rank < kRanks; ++rank)
#pragma unroll
    for (int n = 0; n < 8; ++n) parts[rank][n] = load_of_block(address + 4 * at(n), rank);
#pragma unroll
  for (int rank = 0; rank < kRanks; ++rank)
#pragma unroll
    for (int n = 0; n < 8; ++n) sums[n / 4][n % 4] += parts[rank][n];
}

// Adds up the sums of all blocks of a cluster; each block writes some token tiles.
template <int kTokenTiles, Shape kShape>
__device__ __forceinline__ void finish(const Params& p, const Sums<kTokenTiles>& acc, float* shared, int first_token) {
  const Shape s = shape_of<kShape>(p);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float* own = shared + warp * (8 * kTokenTiles * 32) + lane;  // [2, token tile, 4, lane]
  __syncthreads();                                             // the stages are no longer used
#pragma unroll
  for (int i = 0; i < 8 * kTokenTiles; ++i) own[32 * i] = acc[i / (4 * kTokenTiles)][i / 4 % kTokenTiles][i % 4];
  if (s.split > 1) cluster_barrier();
  const uint32_t address = shared_address(own);
  for (int i = static_cast<int>(blockIdx.y); i < kTokenTiles && first_token + 8 * i < p.n; i += s.split) {
    const auto at = [&](int n) { return 32 * ((n / 4 * kTokenTiles + i) * 4 + n % 4); };
    float sums[2][4] = {};
    switch (s.split) {
      case 1:
#pragma unroll
        for (int n = 0; n < 8; ++n) sums[n / 4][n % 4] = own[at(n)];
        break;
      case 2: add_up<2>(sums, address, at); break;
      case 4: add_up<4>(sums, address, at); break;
      default: add_up<8>(sums, address, at);
    }
    if (s.y_f32) {
      write_sums<float, kShape>(p, sums, warp, first_token + 8 * i, lane);
    } else {
      write_sums<half, kShape>(p, sums, warp, first_token + 8 * i, lane);
    }
  }
  if (s.split > 1) cluster_barrier();  // no block ends while other blocks read its sums
}

template <class K, int kTokenTiles, Shape kShape>
__device__ __forceinline__ void run(const Params& p) {
  using S = Stage<K, kTokenTiles>;
  extern __shared__ __align__(128) char shared[];
  __shared__ uint32_t table[K::kLayout == Layout::kCodebook4 ? 256 : 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Shape s = shape_of<kShape>(p);
  const int begin = static_cast<int>(blockIdx.y) * s.n_steps / s.split,
            end = (static_cast<int>(blockIdx.y) + 1) * s.n_steps / s.split;
  const int first_token = static_cast<int>(blockIdx.z) * S::kTokens;
  let_next_start();

  const auto source = [&](int j) {
    const int tile = min(tile_of(s.act >= 0, warp, j), s.n_tiles - 1), job = s.act >= 0 ? j : job_of(s, tile);
    return Source<K>(p.jobs[job].w, tile - pick(s.first_tile, job), lane, begin);
  };
  Source<K> sources[2] = {source(0), source(1)};
  const uint32_t stages = shared_address(shared);
  const auto copy_weights = [&](int stage, int step) {
#pragma unroll
    for (int j = 0; j < 2; ++j)
      sources[j].copy_next(stages + stage * S::kBytes + S::kWeights + (2 * warp + j) * K::kSlotBytes, lane, step < end);
  };
  if (p.decoded) wait_for_previous();
  for (int i = 0; i < s.n_stages - 1; ++i) copy_weights(i, begin + i);
  if constexpr (K::kLayout == Layout::kCodebook4) fill_levels(table, p.jobs[0].w);
  wait_for_previous();
  for (int i = 0; i < s.n_stages - 1; ++i) {
    if (begin + i < end)
      copy_input<K, kTokenTiles, kShape>(stages + i * S::kBytes, p, first_token, (begin + i) * K::kCols);
    end_copies();
  }

  const half2 offset = __float2half2_rn(1024.0f + static_cast<float>(s.zero));
  Sums<kTokenTiles> acc = {};
  int stage = 0, ahead = s.n_stages - 1;
  for (int step = begin; step < end; ++step) {
    await_stage(s.n_stages);
    __syncthreads();
    if (const int next = step + s.n_stages - 1; next < end) {
      copy_weights(ahead, next);
      copy_input<K, kTokenTiles, kShape>(stages + ahead * S::kBytes, p, first_token, next * K::kCols);
    }
    end_copies();
    const char* at = shared + stage * S::kBytes;
    multiply_step<K, kTokenTiles>(acc, at + S::kWeights + 2 * warp * K::kSlotBytes, at, lane, offset, table);
    stage = stage + 1 == s.n_stages ? 0 : stage + 1;
    ahead = ahead + 1 == s.n_stages ? 0 : ahead + 1;
  }
  await_copies<0>();
  finish<kTokenTiles, kShape>(p, acc, reinterpret_cast<float*>(shared), first_token);
}

}  // namespace ingot::cuda::tile_kernel
