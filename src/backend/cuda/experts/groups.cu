// Products of many rows with the quantized matrices of their experts, on Hopper. A block multiplies a tile of up to 128
// rows of activations with 128 rows of weights (with a gate: 64 of each weight). Each warp decodes 16 of them in
// registers, from where the tensor cores take them (wgmma). The activations are in the order of the codes, so they are
// copied to shared memory 16 bytes at a time, in panels of 64 columns. Two blocks run on a multiprocessor, so that one
// multiplies while the other waits, begins or writes its results.
//
// The order of the codes: a lane of a product owns columns 4t to 4t + 3 of each 16 (packed_weight.h), but the tensor
// core reads elements 2t, 2t + 1, 2t + 8 and 2t + 9 from this lane. So of each 16 columns, the pairs 0, 2, 4, 6 come
// first, then the pairs 1, 3, 5, 7.
#include <algorithm>

#include "backend/cuda/experts/tiles.cuh"
#include "backend/cuda/matmul/launch.cuh"
#include "backend/cuda/matmul/tile_step.cuh"
#include "backend/cuda/matmul/wgmma.cuh"

namespace ingot::cuda {

using namespace expert_tiles_kernel;
using namespace tile_step;
using namespace matvec_step;

namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kOutputs = 128;                // of a block; with a gate, 64 of each weight
constexpr int kPanels = 4, kPanelCols = 64;  // panels of activations in the ring
constexpr int kPanelBytes = kGroupRows * kPanelCols * 2;

template <class K>
struct GroupShared {
  static constexpr int kSlots = K::kPieces == 4 ? 2 : 3;  // steps of weights in a warp's ring
  static constexpr int kWeights = kPanels * kPanelBytes, kWarpBytes = kSlots * K::kSlotBytes;
  static constexpr int kOut = kOutputs + 4;  // floats in a row of sums; the sums overwrite panels and rings
  static constexpr int kRings = kWeights + kWarps * kWarpBytes, kSums = kGroupRows * kOut * 4;
  static constexpr int kBytes = std::max(kRings, kSums) + 1024;  // for the alignment
};

// A thread's part of the panels: 8 columns of some rows. Rows of 128 bytes have 16-byte pieces swizzled by row % 8.
template <int kTokens>
struct Panels {
  static constexpr int kRowsAtOnce = kThreads / 8, kCopies = kTokens / kRowsAtOnce;
  const half* x;
  uint32_t begin[kCopies];  // of the rows, in pieces
  uint32_t to;
  int column, n_in;

  // rows: [kGroupRows], the rows of the tile.
  __device__ Panels(const TileParams& p, const int32_t* rows, uint32_t shared)
      : x(p.x), column(static_cast<int>(threadIdx.x) % 8 * 8), n_in(p.n_in) {
    const int row = static_cast<int>(threadIdx.x) / 8;
    to = shared + row * 128 + 16 * ((threadIdx.x ^ row) % 8);
#pragma unroll
    for (int i = 0; i < kCopies; ++i)
      begin[i] = static_cast<uint32_t>(p.row_of_x(rows[row + i * kRowsAtOnce]) * (p.x_stride / 8));
  }
  // Columns from n_in on become zeros.
  __device__ __forceinline__ void copy_next(int place) {
    const bool in = column < n_in;
#pragma unroll
    for (int i = 0; i < kCopies; ++i)
      copy16(to + place * kPanelBytes + i * kRowsAtOnce * 128, x + (int64_t{begin[i]} * 8 + (in ? column : 0)), in);
    column += kPanelCols;
  }
};

// acc = the warp's tile of weights times kTokens rows of activations.
template <class K, int kTokens>
__device__ __forceinline__ void multiply(float (&acc)[kTokens / 2], Source<K>& source, Panels<kTokens>& panels,
                                         const char* shared, const uint32_t* table, int zero, int n_steps) {
  using S = GroupShared<K>;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const char* ring = shared + S::kWeights + warp * S::kWarpBytes;
  const half2 offset = __float2half2_rn(1024.0f + static_cast<float>(zero));
  const auto copy_weights = [&](int slot, int step) {
    source.copy_next(shared_address(ring) + slot * K::kSlotBytes, lane, step < n_steps);
  };
  // A group of copies is a panel and perhaps a step of weights. Two panels are always on their way.
  for (int i = 0; i < S::kSlots - 1; ++i) copy_weights(i, i);
  panels.copy_next(0), end_copies();
  panels.copy_next(1), end_copies();

  uint32_t a[2][2][4];  // of two units in turn
  int slot = 0, ahead = S::kSlots - 1;
  for (int step = 0; step < n_steps; ++step) {
    const char* codes = ring + slot * K::kSlotBytes;
    const int first = step % 2 * 2;  // the place of the step's first panel
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int place = first + half;
      await_copies<1>();
      __syncwarp();  // lanes use scales that other lanes have copied
      const HalfTile<K> tile(codes, half, lane);
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        tile.decode(a[u], u, offset, table);
        if (u == 0) {
          fence_shared();
          __syncthreads();  // the panel is there, and the products of the panel before the last one have ended
          if (half == 0) copy_weights(ahead, step + S::kSlots - 1);
          panels.copy_next(place ^ 2), end_copies();
        }
        fence_products(acc);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const uint64_t x = matrix(shared_address(shared) + place * kPanelBytes + u * 64 + h * 32, 16, 1024);
          const uint32_t fragment[4] = {a[u][0][2 * h], a[u][1][2 * h], a[u][0][2 * h + 1], a[u][1][2 * h + 1]};
          const bool adds = step > 0 || half > 0 || u > 0 || h > 0;  // the first product overwrites acc
          wgmma_weights<kTokens, false>(acc, fragment, x, adds);
        }
        commit_products();
        await_products<1>(acc);
      }
    }
    slot = slot + 1 == S::kSlots ? 0 : slot + 1;
    ahead = ahead + 1 == S::kSlots ? 0 : ahead + 1;
  }
  await_copies<0>();
  await_products<0>(acc);
}

// Writes a warp's sums of a tile to shared memory: sums [token][kOut], at the columns from `first` on.
template <int kOut, int n>
__device__ __forceinline__ void put_sums(float* sums, int first, const float (&acc)[n]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < n; ++i)
    sums[(i / 4 * 8 + 2 * (lane % 4) + i % 2) * kOut + first + lane / 4 + i / 2 % 2 * 8] = acc[i];
}

template <class K, int kTokens>
__device__ __forceinline__ void work_on(const TileParams& p, const RowTile& tile, const int32_t* rows, char* shared,
                                        const uint32_t* table) {
  using S = GroupShared<K>;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const bool gated = p.act >= 0;
  const int at = static_cast<int>(blockIdx.x) * kWarps / (gated ? 2 : 1) + (gated ? warp % 4 : warp);
  Source<K> source(matrix_of(p.w[gated ? warp / 4 : 0], tile.expert), min(at, p.n_tiles - 1), lane);
  Panels<kTokens> panels(p, rows, shared_address(shared));
  float acc[kTokens / 2];
  multiply<K, kTokens>(acc, source, panels, shared, table, p.w[0].zero, p.n_steps);
  __syncthreads();  // panels and rings are no longer used
  auto* sums = reinterpret_cast<float*>(shared);
  put_sums<S::kOut>(sums, 16 * warp, acc);
  __syncthreads();
  write_sums(p, tile, rows, sums, S::kOut, gated ? kOutputs / 2 : kOutputs, static_cast<int>(threadIdx.x), kThreads);
}

template <class K>
__global__ void __launch_bounds__(kThreads, 2) group_kernel(const __grid_constant__ TileParams p) {
#if INGOT_WGMMA
  extern __shared__ char unaligned[];
  __shared__ uint32_t table[K::kLayout == Layout::kCodebook4 ? 256 : 1];
  __shared__ int32_t rows[kGroupRows];
  char* shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  let_next_start();
  if constexpr (K::kLayout == Layout::kCodebook4) fill_levels(table, p.w[0]);
  wait_for_previous();
  const RowTile tile = p.order.tiles[blockIdx.y];  // undefined past the last tile
  if (static_cast<int>(blockIdx.y) >= *p.order.n_tiles) return;
  if (threadIdx.x < kGroupRows)
    rows[threadIdx.x] = p.order.order[tile.first + min(static_cast<int>(threadIdx.x), tile.n - 1)];
  __syncthreads();
  tile.n <= 32   ? work_on<K, 32>(p, tile, rows, shared, table)
  : tile.n <= 64 ? work_on<K, 64>(p, tile, rows, shared, table)
  : tile.n <= 96 ? work_on<K, 96>(p, tile, rows, shared, table)
                 : work_on<K, 128>(p, tile, rows, shared, table);
#endif
}

// A thread arranges 16 columns. Columns from n_in on become zeros. to and x may be the same.
__global__ void arrange_kernel(half* to, const half* x, int64_t x_stride, int64_t n_rows, int n_in, int n_parts) {
  start_dependent();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, row = i / n_parts;
  if (row >= n_rows) return;
  const int column = static_cast<int>(i % n_parts) * kArrangedCols;
  const uint4* from = reinterpret_cast<const uint4*>(x + row * x_stride + column);
  const uint4 low = from[0], high = column + 8 < n_in ? from[1] : uint4{};
  uint4* put = reinterpret_cast<uint4*>(to + row * n_parts * kArrangedCols + column);
  put[0] = make_uint4(low.x, low.z, high.x, high.z);
  put[1] = make_uint4(low.y, low.w, high.y, high.w);
}

}  // namespace

bool can_group_experts(const PackedWeight& w, const DeviceLimits& device) {
  return device.has_hopper_code && w.layout != Layout::kDense && w.layout != Layout::kFloat8 && !w.f32;
}

Tensor arrange_rows(void* to, const Tensor& x, Device& device) {
  const Tensor y{to, DType::kF16, x.rows, arranged_cols(x.cols), arranged_cols(x.cols)};
  const auto n_parts = static_cast<int>(y.cols / kArrangedCols);
  launch(device, arrange_kernel, dim3(blocks_for(x.rows * n_parts, 256)), 256, 0, static_cast<half*>(to),
         static_cast<const half*>(x.data), x.stride, x.rows, static_cast<int>(x.cols), n_parts);
  return y;
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
