// Kernel of warpgroup_matmul.cu. A tile of outputs has 256 rows of weights, 128 for each of two warpgroups, as two
// operands of 64, and up to 128 rows of activations (tokens). A third warpgroup copies the activations to shared
// memory, 64 columns at a time, in the column order of the codes. A sum may add its columns in any order, if both
// factors have the same order. Each warp prefetches its own codes (matvec_step.cuh), and decodes 32 columns while the
// tensor cores multiply the previous 32 columns.
//
// The steps of all tiles are divided evenly among the blocks, at most one for each multiprocessor. So several blocks
// may share a tile. They add up their sums through global memory, which stays in the L2 cache, and each finishes some
// of the tile's outputs. A block may wait for blocks with lower numbers, which the GPU starts first, and for the few
// blocks of the same tile.
#pragma once
#include "backend/cuda/device.cuh"
#include "backend/cuda/matmul/matvec_step.cuh"
#include "backend/cuda/matmul/tile_step.cuh"
#include "backend/cuda/matmul/warpgroup_outputs.cuh"
#include "backend/cuda/matmul/wgmma.cuh"

namespace ingot::cuda::warpgroup_kernel {

using namespace matvec_step;
using namespace tile_step;

constexpr int kWorkers = 32 * kWarps, kThreads = kWorkers + 128;  // threads that multiply, and all threads of a block
constexpr int kPanels = 6, kPanelCols = 64;                       // panels of activations in the ring
constexpr int kSlots = 3;                                         // steps of weights in a warp's ring

template <class K, int kTokens>
struct Shared {
  static constexpr int kPanelBytes =
      kTokens * kPanelCols * 2;  // rows of 128 bytes, with 16-byte pieces swizzled by row % 8
  static constexpr int kWeights = kPanels * kPanelBytes;
  static constexpr int kWarpBytes = kSlots * kOwn * K::kSlotBytes;
  static constexpr int kStages = kWeights + kWarps * kWarpBytes;
  static constexpr int kBarriers = kStages + kWarps * kStageBytes;
  static constexpr int kBytes = kBarriers + 16 * kPanels + 1024 /* for the alignment */;
};

__device__ __forceinline__ uint32_t full_barrier(uint32_t barriers, int panel) { return barriers + 8 * panel; }
__device__ __forceinline__ uint32_t free_barrier(uint32_t barriers, int panel) {
  return barriers + 8 * (kPanels + panel);
}
__device__ __forceinline__ void init_barriers(uint32_t barriers) {
  if (threadIdx.x > 0) return;
  for (int i = 0; i < kPanels; ++i)
    init_barrier(full_barrier(barriers, i), (kThreads - kWorkers) / 32),
        init_barrier(free_barrier(barriers, i), kWarps);
  fence_barriers();
}

// A thread's part of a panel, in the warpgroup that fetches: 8 columns of some rows. Lane t of a product owns columns
// 4t to 4t + 3 of each 16 (packed_weight.h), but the tensor core reads elements 2t, 2t + 1, 2t + 8 and 2t + 9 from this
// lane. So pairs of columns are swapped.
template <int kTokens>
struct Fetch {
  static constexpr int kRowsAtOnce = 16, kLoads = kTokens / kRowsAtOnce;
  const uint4* from;
  uint32_t rows[kLoads];  // where the rows begin, in pieces
  const int piece, row, n_in;

  // The block's rows begin at first_row, and the last row of x is repeated. stride: elements from a row to the next.
  __device__ Fetch(const half* x, int64_t stride, int n_in_of, int first_row, int last_row)
      : from(reinterpret_cast<const uint4*>(x)),
        piece(static_cast<int>(threadIdx.x) % 8),
        row(static_cast<int>(threadIdx.x) / 8),
        n_in(n_in_of) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      rows[i] = static_cast<uint32_t>(min(first_row + row + i * kRowsAtOnce, last_row) * (stride / 8));
  }
  __device__ __forceinline__ void load(uint4 (&v)[kLoads], int column) const {
    const int at = column + 8 * piece;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) v[i] = at < n_in ? __ldcg(from + rows[i] + at / 8) : uint4{};
  }
  __device__ __forceinline__ void put(char* panel, const uint4 (&v)[kLoads]) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int r = row + i * kRowsAtOnce;
      char* to = panel + r * 128 + piece % 2 * 8;
      *reinterpret_cast<uint2*>(to + 16 * ((piece & 6) ^ (r & 7))) = make_uint2(v[i].x, v[i].z);
      *reinterpret_cast<uint2*>(to + 16 * ((piece | 1) ^ (r & 7))) = make_uint2(v[i].y, v[i].w);
    }
  }
};

// Copies the activations of the block's steps to the ring.
template <class K, int kTokens, Shape kShape>
__device__ __forceinline__ void fetch(const Params& p, char* shared, uint32_t barriers, Share<kTokens, kShape> share) {
  constexpr int kPanelBytes = Shared<K, kTokens>::kPanelBytes;
  uint4 v[2][Fetch<kTokens>::kLoads];
  int panel = 0;
  uint32_t phase = 1;
  const Fetch<kTokens> f(p.x, p.x_stride, shape_of<kShape>(p).n_in, share.token_tile() * kTokens, p.n - 1);
  while (share.next()) {
    f.load(v[0], share.first() * kTileCols);
    for (int step = share.first(), last = share.last(); step < last; ++step) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        f.load(v[1 - i], step * kTileCols + (i + 1) * kPanelCols);  // past the last step, loads unused columns or zeros
        await(free_barrier(barriers, panel), phase);
        f.put(shared + panel * kPanelBytes, v[i]);
        fence_shared();
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(full_barrier(barriers, panel));
        if (++panel == kPanels) panel = 0, phase ^= 1;
      }
    }
  }
}

// A warp's j-th tile of codes in a tile of outputs, from step `first` on.
template <class K, Shape kShape>
__device__ __forceinline__ Source<K> source_of(const Params& p, int outputs, int warp, int j, int lane, int first) {
  const Shape s = shape_of<kShape>(p);
  const int tile = min(tile_of(s.act >= 0, outputs, warp, j), s.n_tiles - 1), job = s.act >= 0 ? j : job_of(s, tile);
  return Source<K>(p.jobs[job].w, tile - pick(s.first_tile, job), lane, first);
}

// A warp's ring of codes, and its place in the ring of panels.
struct Rings {
  char* codes;
  int panel = 0;
  uint32_t phase = 0;
};

template <class K>
__device__ __forceinline__ void copy_codes(const Rings& rings, Source<K> (&sources)[kOwn], int slot, int lane,
                                           bool wanted) {
#pragma unroll
  for (int j = 0; j < kOwn; ++j)
    sources[j].copy_next(shared_address(rings.codes) + (kOwn * slot + j) * K::kSlotBytes, lane, wanted);
  end_copies();
}

// acc[j] += steps [begin, end) of tile j of this warp times the rows of the block. The copies of the first kSlots - 1
// steps of codes have begun.
template <class K, int kTokens>
__device__ __forceinline__ void multiply(float (&acc)[kOwn][kTokens / 2], Source<K> (&sources)[kOwn], Rings& rings,
                                         const char* shared, uint32_t barriers, const uint32_t* table, int zero,
                                         int lane, int begin, int end) {
  using S = Shared<K, kTokens>;
  const half2 offset = __float2half2_rn(1024.0f + static_cast<float>(zero));
  int slot = 0, ahead = kSlots - 1, panel = rings.panel,
      used = -1;  // used: a panel that only the products in flight may still read
  uint32_t phase = rings.phase;
  for (int step = begin; step < end; ++step) {
    await_copies<kSlots - 2>();
    __syncwarp();  // lanes use scales that other lanes have copied
    copy_codes<K>(rings, sources, ahead, lane, step + kSlots - 1 < end);
    const char* slots = rings.codes + kOwn * slot * K::kSlotBytes;
    uint32_t a[2][kOwn][2][4];  // of two units in turn
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const HalfTile<K, true> tiles[kOwn] = {{slots, half, lane}, {slots + K::kSlotBytes, half, lane}};
#pragma unroll
      for (int u = 0; u < 2; ++u) {
#pragma unroll
        for (int j = 0; j < kOwn; ++j) tiles[j].decode(a[u][j], u, offset, table);
        if (u == 0) await(full_barrier(barriers, panel), phase);
#pragma unroll
        for (int j = 0; j < kOwn; ++j) fence_products(acc[j]);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const uint64_t x = matrix(shared_address(shared) + panel * S::kPanelBytes + u * 64 + h * 32, 16, 1024);
#pragma unroll
          for (int j = 0; j < kOwn; ++j) {
            const uint32_t(&own)[2][4] = a[u][j];
            const uint32_t fragment[4] = {own[0][2 * h], own[1][2 * h], own[0][2 * h + 1], own[1][2 * h + 1]};
            wgmma_weights<kTokens, false>(acc[j], fragment, x);
          }
        }
        commit_products();
#pragma unroll
        for (int j = 0; j < kOwn; ++j) await_products<1>(acc[j]);
        if (u == 0) {
          if (used >= 0 && lane == 0) arrive(free_barrier(barriers, used));
          used = panel;
        } else if (++panel == kPanels) {
          panel = 0, phase ^= 1;
        }
      }
    }
    slot = slot + 1 == kSlots ? 0 : slot + 1;
    ahead = ahead + 1 == kSlots ? 0 : ahead + 1;
  }
#pragma unroll
  for (int j = 0; j < kOwn; ++j) await_products<0>(acc[j]);
  if (lane == 0) arrive(free_barrier(barriers, used));
  rings.panel = panel, rings.phase = phase;
  await_copies<0>();
  __syncwarp();  // all lanes have read their codes
}

// Multiplies the block's share of the steps. The first codes are copied while the previous kernel still runs.
template <class K, int kTokens, Shape kShape>
__device__ __forceinline__ void work(const Params& p, char* shared, uint32_t barriers, const uint32_t* table,
                                     int thread, Share<kTokens, kShape> share) {
  using S = Shared<K, kTokens>;
  const Shape s = shape_of<kShape>(p);
  const int warp = thread / 32, lane = thread % 32;
  Rings rings{shared + S::kWeights + warp * S::kWarpBytes};
  const auto source = [&](int j) { return source_of<K, kShape>(p, share.tile(), warp, j, lane, share.first()); };
  Source<K> sources[kOwn] = {source(0), source(1)};
  const auto begin_tile = [&] {
    if (!share.next()) return false;
#pragma unroll
    for (int j = 0; j < kOwn; ++j) sources[j] = source(j);
    for (int i = 0; i < kSlots - 1; ++i) copy_codes<K>(rings, sources, i, lane, share.first() + i < share.last());
    return true;
  };
  bool more = begin_tile();
  wait_for_previous();
  while (more) {
    float acc[kOwn][kTokens / 2] = {};
    multiply<K, kTokens>(acc, sources, rings, shared, barriers, table, s.zero, lane, share.first(), share.last());
    const int done = share.tile();
    more = begin_tile();  // its codes come while this tile is written
    finish_tile<kTokens, kShape>(p, acc, share, done, warp, lane, shared + S::kStages);
  }
}

template <class K, int kTokens, Shape kShape>
__device__ __forceinline__ void run(const Params& p) {
#if INGOT_WGMMA
  extern __shared__ char unaligned[];
  __shared__ uint32_t table[K::kLayout == Layout::kCodebook4 ? 256 : 1];
  char* shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const uint32_t barriers = shared_address(shared) + Shared<K, kTokens>::kBarriers;
  const Share<kTokens, kShape> share(p);
  let_next_start();
  init_barriers(barriers);
  if constexpr (K::kLayout == Layout::kCodebook4) fill_levels(table, p.jobs[0].w);
  __syncthreads();
  if (threadIdx.x < kThreads - kWorkers) {
    shrink_registers<104>();
    wait_for_previous();
    fetch<K, kTokens, kShape>(p, shared, barriers, share);
  } else {
    grow_registers<200>();
    work<K, kTokens, kShape>(p, shared, barriers, table, static_cast<int>(threadIdx.x) - (kThreads - kWorkers), share);
  }
#endif
}

}  // namespace ingot::cuda::warpgroup_kernel
