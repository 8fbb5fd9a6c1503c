// Shared by matvec.cuh, dot_codes.cuh, tile_matmul.cuh and warpgroup_matmul.cuh: products of several weights in one
// launch, as a list of tiles of 16 rows, and the last stage of such a tile.
//
// A kernel whose body is a template over a Shape is compiled twice: ahead of time with Shape{}, for any product, and at
// run time with the constants of one product (specialised.h).
#pragma once
#include "backend/cuda/device.cuh"
#include "backend/cuda/matmul/product_shape.h"

namespace ingot::cuda::matvec_tiles {

constexpr int kMaxWarps = 16;             // in a block
constexpr int kPrefetchBytes = 64 << 10;  // of a tile, prefetched to the L2 cache while the previous kernel still runs

using Shape = ProductShape;

struct Job {
  PackedWeight w;
  const float* bias;
  void* y;
  int64_t y_stride;
};

struct Params : Shape {
  Job jobs[3];
  const half* x;
  int64_t x_stride;
  RowNorm norm;  // x is the result of this norm, if there is one
  int n;
  bool decoded;  // the previous kernel writes the weight
};

// The constants of a specialised kernel, otherwise the values of the launch.
template <Shape kShape>
__device__ __forceinline__ Shape shape_of(const Shape& p) {
  if constexpr (kShape.n_in > 0) {
    return kShape;
  } else {
    return p;
  }
}

// v[i], without a copy of v in memory.
__device__ __forceinline__ int pick(const int (&v)[3], int i) { return i == 0 ? v[0] : i == 1 ? v[1] : v[2]; }

__device__ __forceinline__ int job_of(const Shape& s, int tile) {
  int job = 0;
#pragma unroll
  for (int i = 1; i < 3; ++i)
    if (i < s.n_jobs && tile >= s.first_tile[i]) job = i;
  return job;
}

// Prefetches the first bytes of a tile to the L2 cache.
__device__ __forceinline__ void prefetch_tile(const PackedWeight& w, int64_t tile) {
#if __CUDA_ARCH__ >= 900
  const bool dense = w.layout == Layout::kDense;
  const int64_t per_tile = dense ? kTileRows * w.n_in * 2 : w.k_tiles * kTileUnits * (has_bytes(w.layout) ? 32 : 16);
  const int64_t rows = dense ? min(int64_t{kTileRows}, w.n_out - tile * kTileRows) : kTileRows;
  const uint32_t bytes = static_cast<uint32_t>(min(rows * per_tile / kTileRows, int64_t{kPrefetchBytes}));
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(static_cast<const char*>(w.data) + tile * per_tile),
               "r"(bytes));
#endif
}

// Adds up the sums of a tile's warps, which are to be multiplied by `unit`, and writes the tile's [16 rows, n tokens].
// Writes nothing in a warm-up pass (device.cuh).
template <int kGates, Shape kShape = Shape{}>
__device__ __forceinline__ void write_tile(const Params& p, int n, const float* sums, int local, int tile, float unit,
                                           bool real = true) {
  const Shape s = shape_of<kShape>(p);
  const int at_job = kGates == 1 ? job_of(s, tile) : 0, n_outputs = kTileRows * n;
  const Job* job = &p.jobs[at_job];
  for (int o = static_cast<int>(threadIdx.x) % (s.split * 32); o < n_outputs; o += s.split * 32) {
    const int token = o / kTileRows, row = (tile - pick(s.first_tile, at_job)) * kTileRows + o % kTileRows;
    if (row >= pick(s.n_out, at_job)) continue;
    float total[kGates];
#pragma unroll
    for (int j = 0; j < kGates; ++j) {
      total[j] = 0;
      for (int part = 0; part < s.split; ++part)
        total[j] += sums[((local * s.split + part) * kGates + j) * n_outputs + o];
      total[j] = total[j] * (job[j].w.factor * unit) + (s.has_bias && job[j].bias ? job[j].bias[row] : 0.0f);
    }
    const float value = kGates == 2 ? act_mul(total[0], total[kGates - 1], s.act) : total[0];
    const int64_t at = token * job->y_stride + row;
    if (!real) continue;
    if (s.y_f32) {
      float* y = static_cast<float*>(job->y) + at;
      *y = s.accumulate ? *y + value : value;
    } else {
      half* y = static_cast<half*>(job->y) + at;
      *y = from_float<half>(s.accumulate ? __half2float(*y) + value : value);
    }
  }
}

#ifndef __CUDACC_RTC__
// Sets all fields except n_steps, split, n_warps, n_tokens, warms_instruction_cache and staged.
inline Params params_of(const Matvec& m) {
  CHECK(m.x.dtype == DType::kF16);
  CHECK(m.x.stride % 8 == 0 && reinterpret_cast<uintptr_t>(m.x.data) % 16 == 0);
  const bool gated = m.gate >= 0;
  Params p{};
  int n_tiles = 0;
  for (int i = 0; i < m.n_jobs; ++i) {
    const Tensor& y = m.y[gated ? 0 : i];
    const PackedWeight& w = *m.jobs[i].w;
    CHECK(share_matvec(w, *m.jobs[0].w) && y.dtype == m.y[0].dtype);
    p.jobs[i] = {w, m.jobs[i].bias, y.data, y.stride};
    p.first_tile[i] = gated ? 0 : n_tiles;
    p.n_out[i] = static_cast<int>(w.n_out);
    p.has_bias |= m.jobs[i].bias != nullptr;
    n_tiles += static_cast<int>((w.n_out + kTileRows - 1) / kTileRows);
  }
  p.n_jobs = m.n_jobs;
  p.n_tiles = gated ? n_tiles / 2 : n_tiles;
  p.zero = m.jobs[0].w->zero;
  p.x = static_cast<const half*>(m.x.data);
  p.x_stride = m.x.stride;
  p.norm = row_norm_of(m.norm);
  p.has_norm = m.norm != nullptr;
  p.n = static_cast<int>(m.x.rows);
  p.decoded = m.decoded;
  p.n_in = static_cast<int>(m.x.cols);
  p.y_f32 = m.y[0].dtype == DType::kF32;
  p.accumulate = m.accumulate;
  p.act = m.gate;
  return p;
}

// Sets p.split for blocks of n_warps warps, and returns the number of blocks.
inline int divide(const Device& device, Params& p, int n_warps) {
  p.n_warps = n_warps;
  const int most_blocks = (n_warps == kMaxWarps ? 1 : 2) * device.n_multiprocessors();
  p.split = n_warps;
  while (p.split > p.n_steps) p.split /= 2;
  // If there are enough tiles for all warps, fewer warps share a tile, and wait less for each other.
  while (p.split > 1 && p.n_steps < 4 * p.split &&
         int64_t{p.n_tiles} * p.split >= int64_t{2} * 4 * n_warps * most_blocks)
    p.split /= 2;
  return static_cast<int>(min(int64_t{blocks_for(p.n_tiles, n_warps / p.split)}, int64_t{most_blocks}));
}

#endif

}  // namespace ingot::cuda::matvec_tiles

#ifndef __CUDACC_RTC__
namespace ingot::cuda {

// dot_codes.cu
inline constexpr int kMaxCodeColumns = 16 << 10;
void dot_codes(const matvec_tiles::Params& p, bool gated, SpecialisedKernels* specialised, Device& device);

}  // namespace ingot::cuda
#endif
