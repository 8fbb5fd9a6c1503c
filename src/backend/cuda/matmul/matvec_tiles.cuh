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
  if constexpr (kArch >= 900) {
    const bool dense = w.layout == Layout::kDense;
    const int64_t per_tile = dense ? kTileRows * w.n_in * 2 : w.k_tiles * kTileUnits * (has_bytes(w.layout) ? 32 : 16);
    const int64_t rows = dense ? min(int64_t{kTileRows}, w.n_out - tile * kTileRows) : kTileRows;
    const uint32_t bytes = static_cast<uint32_t>(min(rows * per_tile / kTileRows, int64_t{kPrefetchBytes}));
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(static_cast<const char*>(w.data) + tile * per_tile),
                 "r"(bytes));
  }
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

}  // namespace ingot::cuda::matvec_tiles
