// Products of many rows with the matrices of their experts. The rows are in tiles with one expert each (ExpertOrder).
// The device makes the tiles, so the grid has room for the largest possible number of tiles, and surplus blocks end at
// once. A block handles sixteen tiles of 16 outputs, two for each warp (with a gate: eight of each weight), and one
// tile of up to 64 rows. It processes their columns in steps that are prefetched to shared memory, as in
// tile_matmul.cu. Dense weights use the same kernel.
#include <algorithm>

#include "backend/cuda/experts/tiles.cuh"
#include "backend/cuda/matmul/launch.cuh"
#include "backend/cuda/matmul/matvec_step.cuh"
#include "backend/cuda/matmul/tile_step.cuh"
#include "backend/cuda/memory.h"

namespace ingot::cuda {

using namespace matvec_step;
using namespace tile_step;
using namespace expert_tiles_kernel;

namespace {

constexpr int kWarps = 8, kTiles = 2 * kWarps;  // in a block

constexpr size_t kStaticShared = 2048;  // more than the kernel declares

template <class K, int kTokenTiles>
struct Stage {
  static constexpr int kTokens = 8 * kTokenTiles;
  static constexpr int kWeights = kTokens * kInputRowBytes<K>;
  static constexpr int kBytes = kWeights + kTiles * K::kSlotBytes;
  static constexpr int kOut = 16 * kTiles + 4;  // floats in a row of sums
  static constexpr int kSums = kTokens * kOut * 4;
  // Three stages if two such blocks fit a multiprocessor.
  static int n_stages(size_t most_shared) {
    return stages_that_fit(kBytes, 3 * kBytes <= (112 << 10) ? 3 : 2, most_shared - kStaticShared);
  }
};

// The block's rows of activations, kCols columns of them, with zeros from column n_in on. Rows past the last row repeat
// the last row.
template <class K, int kTokenTiles>
struct Input {
  using S = Stage<K, kTokenTiles>;
  static constexpr int kPerRow = K::kCols / 8, kRowsAtOnce = 32 * kWarps / kPerRow,
                       kLoads = (S::kTokens + kRowsAtOnce - 1) / kRowsAtOnce;
  const TileParams& p;
  const int row, k;
  const half* from[kLoads];

  __device__ Input(const TileParams& params, const RowTile& tile)
      : p(params), row(static_cast<int>(threadIdx.x) / kPerRow), k(static_cast<int>(threadIdx.x) % kPerRow * 8) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int at = p.order.order[tile.first + min(row + i * kRowsAtOnce, tile.n - 1)];
      from[i] = p.x + p.row_of_x(at) * p.x_stride;
    }
  }
  __device__ __forceinline__ void copy(uint32_t to, int column) const {
    const bool in = column + k < p.n_in;
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      if (row + i * kRowsAtOnce < S::kTokens)
        copy16(to + (row + i * kRowsAtOnce) * kInputRowBytes<K> + 2 * k, from[i] + (in ? column + k : 0), in);
  }
};

// Writes the sums to shared memory, and from there 8 neighbours at a time to y. `rows` are the rows of the tile.
template <class K, int kTokenTiles>
__device__ void finish(const TileParams& p, const float (&acc)[2][kTokenTiles][4], const RowTile& tile,
                       const int32_t* rows, float* shared) {
  using S = Stage<K, kTokenTiles>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const bool gate = p.act >= 0;
  __syncthreads();  // the stages are no longer used
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int at = gate ? j * (16 * kWarps) + 16 * warp : 32 * warp + 16 * j;
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) shared[(8 * i + 2 * t + e % 2) * S::kOut + at + g + e / 2 * 8] = acc[j][i][e];
  }
  __syncthreads();
  write_sums(p, tile, rows, shared, S::kOut, gate ? 16 * kWarps : 16 * kTiles, static_cast<int>(threadIdx.x),
             32 * kWarps);
}

template <class K, int kTokenTiles>
__global__ void __launch_bounds__(32 * kWarps, kTokenTiles == 1 ? 3 : 2)
    expert_kernel(const __grid_constant__ TileParams p) {
  using S = Stage<K, kTokenTiles>;
  extern __shared__ __align__(128) char shared[];
  __shared__ uint32_t table[K::kLayout == Layout::kCodebook4 ? 256 : 1];
  __shared__ int32_t rows[S::kTokens];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  let_next_start();
  if constexpr (K::kLayout == Layout::kCodebook4) fill_levels(table, p.w[0]);
  // If the block's expert is known in advance, its first weights come while the previous kernel still runs.
  const int at_tile = static_cast<int>(blockIdx.y);
  const bool known = at_tile < p.order.n_first;
  if (!known) wait_for_previous();
  if (!known && at_tile >= *p.order.n_tiles) return;
  const int expert = known ? at_tile : p.order.tiles[at_tile].expert;
  const auto source = [&](int j) {
    const bool gate = p.act >= 0;
    const int at = static_cast<int>(blockIdx.x) * (gate ? kWarps : kTiles) + (gate ? warp : 2 * warp + j);
    return Source<K>(matrix_of(p.w[gate ? j : 0], expert), min(at, p.n_tiles - 1), lane);
  };
  Source<K> sources[2] = {source(0), source(1)};
  const uint32_t stages = shared_address(shared);
  const auto copy_weights = [&](int stage, int step) {
#pragma unroll
    for (int j = 0; j < 2; ++j)
      sources[j].copy_next(stages + stage * S::kBytes + S::kWeights + (2 * warp + j) * K::kSlotBytes, lane,
                           step < p.n_steps);
  };
  for (int s = 0; s < p.n_stages - 1; ++s) copy_weights(s, s);
  if (known) wait_for_previous();
  const RowTile tile = p.order.tiles[at_tile];
  if (tile.n == 0) return end_copies(), await_copies<0>();
  if (static_cast<int>(threadIdx.x) < tile.n) rows[threadIdx.x] = p.order.order[tile.first + threadIdx.x];
  const Input<K, kTokenTiles> input(p, tile);
  const auto copy_input = [&](int stage, int step) {
    if (step < p.n_steps) input.copy(stages + stage * S::kBytes, step * K::kCols);
    end_copies();
  };
  for (int s = 0; s < p.n_stages - 1; ++s) copy_input(s, s);

  const half2 offset = __float2half2_rn(1024.0f + static_cast<float>(p.w[0].zero));
  float acc[2][kTokenTiles][4] = {};
  const auto copy = [&](int stage, int step) {
    copy_weights(stage, step);
    copy_input(stage, step);
  };
  run_steps(0, p.n_steps, p.n_stages, copy, [&](int stage) {
    const char* at = shared + stage * S::kBytes;
    multiply_step<K>(acc, at + S::kWeights + 2 * warp * K::kSlotBytes, at, lane, offset, table);
  });
  finish<K, kTokenTiles>(p, acc, tile, rows, reinterpret_cast<float*>(shared));
}

template <class K, int kTokenTiles>
void start(TileParams p, Device& device) {
  using S = Stage<K, kTokenTiles>;
  p.n_steps = (p.n_in + K::kCols - 1) / K::kCols;
  p.n_stages = S::n_stages(device.most_shared());
  CHECK(p.n_stages >= 2);
  launch(device, expert_kernel<K, kTokenTiles>,
         dim3(blocks_for(p.n_tiles, p.act >= 0 ? kWarps : kTiles), static_cast<unsigned>(p.order.most_tiles)),
         32 * kWarps, std::max(static_cast<size_t>(p.n_stages) * S::kBytes, size_t{S::kSums}), p);
}

}  // namespace

void expert_tiles(const ExpertMatmul& m, const ExpertOrder& order, Device& device) {
  CHECK(m.x.dtype == DType::kF16 && m.x.stride % 8 == 0 && reinterpret_cast<uintptr_t>(m.x.data) % 16 == 0);
  CHECK(m.weights == nullptr && order.most_tiles <= 65535);
  const PackedWeight& w = *m.w[0];
  TileParams p{};
  for (int j = 0; j < (m.gate >= 0 ? 2 : 1); ++j) p.w[j] = *m.w[j], p.bias[j] = m.bias[j];
  p.x = static_cast<const half*>(m.x.data);
  CHECK(m.n_rows % m.x.rows == 0);
  p.x_stride = m.x.stride, p.rows_per_x = static_cast<int>(m.n_rows / m.x.rows);
  p.order = order;
  p.n_in = static_cast<int>(m.x.cols);
  p.n_tiles = static_cast<int>((w.n_out + kTileRows - 1) / kTileRows);
  p.y = m.y.data, p.y_stride = m.y.stride, p.y_f32 = m.y.dtype == DType::kF32;
  p.y_packs = !p.y_f32 && w.n_out % 8 == 0 && m.y.stride % 8 == 0 && reinterpret_cast<uintptr_t>(m.y.data) % 16 == 0;
  p.y_arranged = m.y_arranged;
  CHECK(!p.y_arranged || (p.y_packs && w.n_out % kArrangedCols == 0));
  p.act = m.gate;
  if (m.tiling.streams) return stream_experts(p, m.knows_experts, device);
  if (order.tile_rows == kGroupRows) return expert_groups(p, device);
  with_kind(w, [&](auto kind) {
    using K = decltype(kind);
    p.order.tile_rows <= 8    ? start<K, 1>(p, device)
    : p.order.tile_rows <= 16 ? start<K, 2>(p, device)
    : p.order.tile_rows <= 32 ? start<K, 4>(p, device)
                              : start<K, 8>(p, device);
  });
}

}  // namespace ingot::cuda
