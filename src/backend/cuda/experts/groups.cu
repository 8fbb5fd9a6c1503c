// Products of many rows with the quantized matrices of their experts, on Hopper: the kernel of warpgroup_matmul.cuh for
// tiles of 64 rows. A block has two warpgroups that multiply, each 64 rows of weights (with a gate: the first those of
// `gate`, the second those of `up`), and one that copies the rows of activations. Two blocks run on a multiprocessor,
// so that one multiplies while the other begins or writes its results.
#include <algorithm>

#include "backend/cuda/experts/tiles.cuh"
#include "backend/cuda/matmul/warpgroup_matmul.cuh"

namespace ingot::cuda {

using namespace expert_tiles_kernel;
using namespace warpgroup_kernel;

namespace {

constexpr int kRows = 64;      // of a tile
constexpr int kOutputs = 128;  // of a block; with a gate, 64 of each weight

template <class K>
using GroupShared = Shared<K, kRows, 1>;

template <class K>
__device__ __forceinline__ void work_on(const TileParams& p, const RowTile& tile, const int32_t* rows, char* shared,
                                        uint32_t barriers, const uint32_t* table, int thread) {
  using S = GroupShared<K>;
  const int warp = thread / 32, lane = thread % 32, group = warp / 4;
  const bool gated = p.act >= 0;
  const int at = static_cast<int>(blockIdx.x) * kOutputs / 16 / (gated ? 2 : 1) + (gated ? warp % 4 : warp);
  Source<K> sources[1] = {{matrix_of(p.w[gated ? group : 0], tile.expert), min(at, p.n_tiles - 1), lane}};
  float acc[1][kRows / 2];
  multiply<K, kRows>(acc, sources, shared, barriers, table, p.w[0].zero, warp, lane, 0, p.n_steps);
  workers_barrier();  // the rings are no longer used
  auto* sums = reinterpret_cast<float*>(shared);
  put_sums<kRows>(sums, S::kOut, 16 * warp, acc[0], lane);
  workers_barrier();
  write_sums(p, tile, rows, sums, S::kOut, gated ? kOutputs / 2 : kOutputs, thread, kWorkers);
}

template <class K>
__global__ void __launch_bounds__(kThreads, 2) group_kernel(const __grid_constant__ TileParams p) {
#if INGOT_WGMMA
  using S = GroupShared<K>;
  extern __shared__ char unaligned[];
  __shared__ uint32_t table[K::kLayout == Layout::kCodebook4 ? 256 : 1];
  __shared__ int32_t rows[kRows];
  char* shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const uint32_t barriers = shared_address(shared) + S::kBarriers;
  let_next_start();
  init_barriers(barriers);
  if constexpr (K::kLayout == Layout::kCodebook4) fill_levels(table, p.w[0]);
  wait_for_previous();
  const RowTile tile = p.order.tiles[blockIdx.y];  // undefined past the last tile
  if (static_cast<int>(blockIdx.y) >= *p.order.n_tiles) return;
  if (threadIdx.x < kRows)
    rows[threadIdx.x] = p.order.order[tile.first + min(static_cast<int>(threadIdx.x), tile.n - 1)];
  __syncthreads();
  if (threadIdx.x < kThreads - kWorkers) {
    const Fetch<kRows> from(p.x, p.x_stride, p.n_in, [&](int i) { return p.row_of_x(rows[i]); });
    fetch<S::kPanelBytes>(from, shared, barriers, 0, p.n_steps);
  } else {
    work_on<K>(p, tile, rows, shared, barriers, table, static_cast<int>(threadIdx.x) - (kThreads - kWorkers));
  }
#endif
}

}  // namespace

bool can_group_experts(const PackedWeight& w, const ExpertOrder& order, const Device& device) {
  return device.limits().has_hopper_code && w.layout != Layout::kDense && !w.f32 && order.tile_rows == kRows;
}

void expert_groups(TileParams p, Device& device) {
  with_codes(p.w[0], [&](auto kind) {
    using K = decltype(kind);
    p.n_steps = (p.n_in + K::kCols - 1) / K::kCols;
    const dim3 grid(blocks_for(p.n_tiles, kOutputs / 16 / (p.act >= 0 ? 2 : 1)),
                    static_cast<unsigned>(p.order.most_tiles));
    launch(device, group_kernel<K>, grid, kThreads, GroupShared<K>::kBytes, p);
  });
}

}  // namespace ingot::cuda
