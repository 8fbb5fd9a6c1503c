// Kernel of warpgroup_matmul.cu. A block handles 256 rows of weights, 128 for each of two warpgroups, as two operands
// of 64, and up to 128 rows of activations. A third warpgroup copies the activations to shared memory, 64 columns at a
// time, in the column order of the codes. A sum may add its columns in any order, if both factors have the same order.
// Each warp prefetches its own tiles of codes (matvec_step.cuh), and decodes 32 columns while the tensor cores multiply
// the previous 32 columns.
//
// If there are fewer blocks than multiprocessors, a cluster of blocks shares the columns. Clusters of 7 blocks often
// use more multiprocessors than clusters of 8, so every size is possible.
#pragma once
#include "backend/cuda/device.cuh"
#include "backend/cuda/matmul/matvec_step.cuh"
#include "backend/cuda/matmul/matvec_tiles.cuh"
#include "backend/cuda/matmul/tile_step.cuh"
#include "backend/cuda/matmul/wgmma.cuh"

namespace ingot::cuda::warpgroup_kernel {

using namespace matvec_step;
using namespace tile_step;
using matvec_tiles::Job;
using matvec_tiles::job_of;
using matvec_tiles::Params;
using matvec_tiles::pick;
using matvec_tiles::Shape;
using matvec_tiles::shape_of;

constexpr int kThreads = 384, kWorkers = 256;  // in a block; threads that multiply
constexpr int kTiles = 16, kOwn = 2;           // tiles of 16 rows of weights, in a block and of a warp
constexpr int kPanels = 6, kPanelCols = 64;    // panels of activations in the ring
constexpr int kSlots = 3;                      // steps of weights in a warp's ring

template <class K, int kTokens>
struct Shared {
  static constexpr int kPanelBytes =
      kTokens * kPanelCols * 2;  // rows of 128 bytes, with 16-byte pieces swizzled by row % 8
  static constexpr int kWeights = kPanels * kPanelBytes;
  static constexpr int kWarpBytes = kSlots * kOwn * K::kSlotBytes;
  static constexpr int kOut = 16 * kWorkers / 32 * kOwn + 4;  // floats in a row of sums; the sums overwrite the rings
  static constexpr int kRings = kWeights + kWorkers / 32 * kWarpBytes, kSums = kTokens * kOut * 4;
  static constexpr int kBarriers = kRings > kSums ? kRings : kSums;
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
        init_barrier(free_barrier(barriers, i), kWorkers / 32);
  fence_barriers();
}
__device__ __forceinline__ void workers_barrier() { asm volatile("bar.sync 3, %0;" ::"n"(kWorkers) : "memory"); }

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

template <int kPanelBytes, int kTokens>
__device__ __forceinline__ void fetch(const Fetch<kTokens>& f, char* shared, uint32_t barriers, int begin, int end) {
  uint4 v[2][Fetch<kTokens>::kLoads];
  int panel = 0;
  uint32_t phase = 1;
  f.load(v[0], begin * kTileCols);
  for (int step = begin; step < end; ++step) {
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

// The j-th tile of a warp; with a gate, a tile of the j-th weight.
__device__ __forceinline__ int tile_of(bool gated, int warp, int j) {
  const int block = static_cast<int>(blockIdx.z), group = warp / 4, in_group = warp % 4;
  return gated ? block * (kTiles / 2) + 4 * group + in_group : block * kTiles + 8 * group + 4 * j + in_group;
}

// Adds 8 neighbouring sums of kRows rows over all blocks of the cluster, with the sums of kRanks blocks in flight at
// once. The cluster has at most kRanks blocks. The rows are `stride` apart; row `last` is the last one. Each block
// begins with its own sums, so that not all blocks read from the same block at once.
template <int kRows, int kRanks>
__device__ __forceinline__ void add_up(float (&v)[kRows][8], const float* own, int stride, int last, int split) {
#pragma unroll
  for (auto& row : v)
#pragma unroll
    for (float& x : row) x = 0;
  const uint32_t address = shared_address(own);
  float4 parts[kRanks][2 * kRows];
#pragma unroll
  for (int i = 0; i < kRanks; ++i) {
    if (i >= split) break;
    const int rank = static_cast<int>(blockIdx.y) + i;
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank < split ? rank : rank - split));
#pragma unroll
    for (int j = 0; j < 2 * kRows; ++j)
      asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
                   : "=f"(parts[i][j].x), "=f"(parts[i][j].y), "=f"(parts[i][j].z), "=f"(parts[i][j].w)
                   : "r"(there + 4 * stride * min(j / 2, last) + 16 * (j % 2)));
  }
#pragma unroll
  for (int i = 0; i < kRanks; ++i) {
    if (i >= split) break;
#pragma unroll
    for (int j = 0; j < 2 * kRows; ++j) {
      float* to = v[j / 2] + 4 * (j % 2);
      const float4& part = parts[i][j];
      to[0] += part.x, to[1] += part.y, to[2] += part.z, to[3] += part.w;
    }
  }
}

// Writes 8 neighbours of a row of y, or adds to them; only the first `n` of them exist.
template <class Y>
__device__ __forceinline__ void write8(Y* y, const float (&v)[8], int n, bool accumulate, bool packs) {
  if (!packs) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (i < n) y[i] = from_float<Y>(accumulate ? to_float(y[i]) + v[i] : v[i]);
    return;
  }
  __align__(16) Y whole[8];
  constexpr int kPieces = sizeof(Y) / 2;
#pragma unroll
  for (int i = 0; i < kPieces; ++i)
    reinterpret_cast<uint4*>(whole)[i] = accumulate ? reinterpret_cast<const uint4*>(y)[i] : uint4{};
#pragma unroll
  for (int i = 0; i < 8; ++i) whole[i] = from_float<Y>(accumulate ? to_float(whole[i]) + v[i] : v[i]);
#pragma unroll
  for (int i = 0; i < kPieces; ++i) reinterpret_cast<uint4*>(y)[i] = reinterpret_cast<const uint4*>(whole)[i];
}

// Writes a block's share of the outputs, from sums [token][kOut]. A thread keeps the same 8 rows of weights for all its
// tokens, and handles kRows tokens at a time.
template <int kTokens, int kOut, int kRows, int kRanks, Shape kShape>
__device__ __forceinline__ void write_outputs(const Params& p, const float* sums, int thread, int first_token) {
  const Shape s = shape_of<kShape>(p);
  const bool gated = s.act >= 0;
  const int n_pieces = gated ? kTiles : 2 * kTiles,
            n_together = kWorkers / n_pieces;  // of a row of sums; tokens handled at once
  const int piece = thread % n_pieces, tile = static_cast<int>(blockIdx.z) * (n_pieces / 2) + piece / 2;
  const int column = gated ? piece / 8 * 128 + piece % 8 * 8 : 8 * piece;  // of the sums
  if (tile >= s.n_tiles) return;
  const int at_job = gated ? 0 : job_of(s, tile);
  const Job& job = p.jobs[at_job];
  const int row = (tile - pick(s.first_tile, at_job)) * kTileRows + piece % 2 * 8,
            n_rows = min(8, pick(s.n_out, at_job) - row);
  if (n_rows <= 0) return;
  const int64_t bytes = s.y_f32 ? 4 : 2;
  const bool packs =
      n_rows == 8 && (reinterpret_cast<uintptr_t>(job.y) | static_cast<uintptr_t>(job.y_stride * bytes)) % 16 == 0;
  const int rank = static_cast<int>(blockIdx.y), begin = rank * kTokens / p.split,
            end = (rank + 1) * kTokens / p.split;
  const auto finish = [&](float(&v)[8], const Job& of) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      v[i] = v[i] * of.w.factor + (s.has_bias && of.bias && i < n_rows ? of.bias[row + i] : 0.0f);
  };
#pragma unroll 1
  for (int t = begin + thread / n_pieces; t < end; t += kRows * n_together) {
    float v[kRows][8], up[kRows][8];
    const float* from = sums + t * kOut + column;
    const int last = (end - 1 - t) / n_together;
    add_up<kRows, kRanks>(v, from, n_together * kOut, last, p.split);
    if (gated) add_up<kRows, kRanks>(up, from + 64, n_together * kOut, last, p.split);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int token = t + i * n_together;
      if (i > last || first_token + token >= p.n) break;
      finish(v[i], job);
      if (gated) {
        finish(up[i], p.jobs[1]);
#pragma unroll
        for (int j = 0; j < 8; ++j) v[i][j] = act_mul(v[i][j], up[i][j], s.act);
      }
      const int64_t at = (first_token + token) * job.y_stride + row;
      s.y_f32 ? write8(static_cast<float*>(job.y) + at, v[i], n_rows, s.accumulate, packs)
              : write8(static_cast<half*>(job.y) + at, v[i], n_rows, s.accumulate, packs);
    }
  }
}

// acc[j] = tile j of this warp times the rows of the block. sources: the warp's tiles, from step `begin` on.
template <class K, int kTokens>
__device__ __forceinline__ void multiply(float (&acc)[kOwn][kTokens / 2], Source<K> (&sources)[kOwn],
                                         const char* shared, uint32_t barriers, const uint32_t* table, int zero,
                                         int warp, int lane, int begin, int end) {
  using S = Shared<K, kTokens>;
  const char* ring = shared + S::kWeights + warp * S::kWarpBytes;
  const auto copy = [&](int slot, int step) {
#pragma unroll
    for (int j = 0; j < kOwn; ++j)
      sources[j].copy_next(shared_address(ring) + (kOwn * slot + j) * K::kSlotBytes, lane, step < end);
    end_copies();
  };
  for (int i = 0; i < kSlots - 1; ++i) copy(i, begin + i);

  const half2 offset = __float2half2_rn(1024.0f + static_cast<float>(zero));
  int slot = 0, ahead = kSlots - 1, panel = 0,
      used = -1;  // used: a panel that only the products in flight may still read
  uint32_t phase = 0;
  for (int step = begin; step < end; ++step) {
    await_copies<kSlots - 2>();
    __syncwarp();  // lanes use scales that other lanes have copied
    copy(ahead, step + kSlots - 1);
    const char* slots = ring + kOwn * slot * K::kSlotBytes;
    uint32_t a[2][kOwn][2][4];  // of two units in turn
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const HalfTile<K> tiles[kOwn] = {{slots, half, lane}, {slots + K::kSlotBytes, half, lane}};
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
            // The first product overwrites acc.
            wgmma_weights<kTokens, false>(acc[j], fragment, x, step > begin || half > 0 || u > 0 || h > 0);
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
  await_copies<0>();
#pragma unroll
  for (int j = 0; j < kOwn; ++j) await_products<0>(acc[j]);
}

// Writes a warp's sums of a tile to shared memory: sums [token][n], at the columns from `first` on.
template <int kTokens>
__device__ __forceinline__ void put_sums(float* sums, int n, int first, const float (&acc)[kTokens / 2], int lane) {
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i)
    sums[(i / 4 * 8 + 2 * (lane % 4) + i % 2) * n + first + lane / 4 + i / 2 % 2 * 8] = acc[i];
}

template <class K, int kTokens, Shape kShape>
__device__ __forceinline__ void work(const Params& p, char* shared, uint32_t barriers, const uint32_t* table,
                                     int thread, int first_token, int begin, int end) {
  using S = Shared<K, kTokens>;
  const Shape s = shape_of<kShape>(p);
  const int warp = thread / 32, lane = thread % 32;
  const auto source = [&](int j) {
    const int tile = min(tile_of(s.act >= 0, warp, j), s.n_tiles - 1), job = s.act >= 0 ? j : job_of(s, tile);
    return Source<K>(p.jobs[job].w, tile - pick(s.first_tile, job), lane, begin);
  };
  Source<K> sources[kOwn] = {source(0), source(1)};
  float acc[kOwn][kTokens / 2];
  multiply<K, kTokens>(acc, sources, shared, barriers, table, s.zero, warp, lane, begin, end);
  workers_barrier();  // the rings are no longer used

  float* sums = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int j = 0; j < 2; ++j) put_sums<kTokens>(sums, S::kOut, warp / 4 * 128 + 64 * j + 16 * (warp % 4), acc[j], lane);
  workers_barrier();
  if (p.split > 1) cluster_barrier();
  const auto write = [&]<int kRows, int kRanks>() {
    write_outputs<kTokens, S::kOut, kRows, kRanks, kShape>(p, sums, thread, first_token);
  };
  switch (p.split) {
    case 1: write.template operator()<4, 1>(); break;
    case 2: write.template operator()<4, 2>(); break;
    case 3:
    case 4: write.template operator()<2, 4>(); break;
    default: write.template operator()<1, 8>();
  }
  if (p.split > 1) cluster_barrier();  // no block ends while other blocks read its sums
}

template <class K, int kTokens, Shape kShape>
__device__ __forceinline__ void run(const Params& p) {
#if INGOT_WGMMA
  extern __shared__ char unaligned[];
  __shared__ uint32_t table[K::kLayout == Layout::kCodebook4 ? 256 : 1];
  char* shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const uint32_t barriers = shared_address(shared) + Shared<K, kTokens>::kBarriers;
  const int n_steps = shape_of<kShape>(p).n_steps;
  const int begin = static_cast<int>(blockIdx.y) * n_steps / p.split,
            end = (static_cast<int>(blockIdx.y) + 1) * n_steps / p.split;
  const int first_token = static_cast<int>(blockIdx.x) * kTokens;
  let_next_start();
  init_barriers(barriers);
  if constexpr (K::kLayout == Layout::kCodebook4) fill_levels(table, p.jobs[0].w);
  __syncthreads();
  if (threadIdx.x < kThreads - kWorkers) {
    shrink_registers<104>();
    wait_for_previous();
    const Fetch<kTokens> rows(p.x, p.x_stride, shape_of<kShape>(p).n_in, first_token, p.n - 1);
    fetch<Shared<K, kTokens>::kPanelBytes>(rows, shared, barriers, begin, end);
  } else {
    grow_registers<200>();
    wait_for_previous();
    work<K, kTokens, kShape>(p, shared, barriers, table, static_cast<int>(threadIdx.x) - (kThreads - kWorkers),
                             first_token, begin, end);
  }
#endif
}

}  // namespace ingot::cuda::warpgroup_kernel
