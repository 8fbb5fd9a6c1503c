// What matvec.cu and dot_codes.cu share: products of several weights in one launch, as a list of tiles of 16 rows, and the end of one.
#pragma once
#include "backend/cuda/device.cuh"

namespace ingot::cuda::matvec_tiles {

constexpr int kMostWarps = 16;            // of a block
constexpr int kPrefetchBytes = 64 << 10;  // of a tile, to the L2 cache, while the kernel in front still runs

struct Job {
  PackedWeight w;
  const float* bias;
  void* y;
  int64_t y_stride;
  int first_tile;
};

struct Params {
  Job jobs[3];
  int n_jobs, n_tiles;  // of rows, in all jobs; gated: in one of the two
  const half* x;
  int64_t x_stride;
  RowNorm norm;  // whose result x is, if any
  int n, n_in, n_steps;
  int split;    // warps that share a tile
  bool staged;  // the block copies all activations to shared memory first; else x is arranged already
  bool y_f32, accumulate;
  bool rehearses;  // device.cuh
  int act;
};

__device__ __forceinline__ int job_of(const Params& p, int tile) {
  int job = 0;
  for (int i = 1; i < p.n_jobs; ++i)
    if (tile >= p.jobs[i].first_tile) job = i;
  return job;
}

// Asks for the first bytes of a tile to be in the L2 cache soon.
__device__ __forceinline__ void prefetch_tile(const PackedWeight& w, int64_t tile) {
#if __CUDA_ARCH__ >= 900
  const bool dense = w.layout == Layout::kDense;
  const int64_t per_tile =
      dense ? kTileRows * w.n_in * 2 : w.k_tiles * kTileUnits * (w.layout == Layout::kCodes8 ? 32 : 16);
  const int64_t rows = dense ? min(int64_t{kTileRows}, w.n_out - tile * kTileRows) : kTileRows;
  const uint32_t bytes = static_cast<uint32_t>(min(rows * per_tile / kTileRows, int64_t{kPrefetchBytes}));
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(static_cast<const char*>(w.data) + tile * per_tile),
               "r"(bytes));
#endif
}

// Adds up the warps of a tile, whose sums are multiples of 1 / unit, and writes its [16 rows, n tokens], unless it is a rehearsal.
template <int kGates>
__device__ void write_tile(const Params& p, const float* sums, int local, int tile, float unit, bool real = true) {
  const Job* job = &p.jobs[kGates == 1 ? job_of(p, tile) : 0];
  const int n_outputs = kTileRows * p.n;
  for (int o = static_cast<int>(threadIdx.x) % (p.split * 32); o < n_outputs; o += p.split * 32) {
    const int token = o / kTileRows;
    const int64_t row = int64_t{tile - job->first_tile} * kTileRows + o % kTileRows;
    if (row >= job->w.n_out) continue;
    float total[kGates];
#pragma unroll
    for (int j = 0; j < kGates; ++j) {
      total[j] = 0;
      for (int part = 0; part < p.split; ++part)
        total[j] += sums[((local * p.split + part) * kGates + j) * n_outputs + o];
      total[j] = total[j] * (job[j].w.factor * unit) + (job[j].bias ? job[j].bias[row] : 0.0f);
    }
    const float value = kGates == 2 ? act_mul(total[0], total[kGates - 1], p.act) : total[0];
    const int64_t at = token * job->y_stride + row;
    if (!real) continue;
    if (p.y_f32) {
      float* y = static_cast<float*>(job->y) + at;
      *y = p.accumulate ? *y + value : value;
    } else {
      half* y = static_cast<half*>(job->y) + at;
      *y = from_float<half>(p.accumulate ? __half2float(*y) + value : value);
    }
  }
}

// All but n_steps, split and staged.
inline Params params_of(const Matvec& m) {
  CHECK(m.x.dtype == DType::kF16);
  CHECK(m.x.stride % 8 == 0 && reinterpret_cast<uintptr_t>(m.x.data) % 16 == 0);
  const bool gated = m.gate >= 0;
  Params p{};
  int n_tiles = 0;
  for (int i = 0; i < m.n_jobs; ++i) {
    const Tensor& y = m.y[gated ? 0 : i];
    CHECK(share_matvec(*m.jobs[i].w, *m.jobs[0].w) && y.dtype == m.y[0].dtype);
    p.jobs[i] = {*m.jobs[i].w, m.jobs[i].bias, y.data, y.stride, gated ? 0 : n_tiles};
    n_tiles += static_cast<int>((m.jobs[i].w->n_out + kTileRows - 1) / kTileRows);
  }
  p.n_jobs = m.n_jobs;
  p.n_tiles = gated ? n_tiles / 2 : n_tiles;
  p.x = static_cast<const half*>(m.x.data);
  p.x_stride = m.x.stride;
  p.norm = row_norm_of(m.norm);
  p.n = static_cast<int>(m.x.rows);
  p.n_in = static_cast<int>(m.x.cols);
  p.y_f32 = m.y[0].dtype == DType::kF32;
  p.accumulate = m.accumulate;
  p.act = m.gate;
  return p;
}

// Sets p.split for blocks of n_warps, and returns how many blocks.
inline int divide(Params& p, int n_warps) {
  const int most_blocks = (n_warps == kMostWarps ? 1 : 2) * n_multiprocessors();
  p.split = n_warps;
  while (p.split > p.n_steps) p.split /= 2;
  // Where there are tiles enough for all, fewer warps share one, and wait for each other less.
  while (p.split > 1 && p.n_steps < 4 * p.split &&
         int64_t{p.n_tiles} * p.split >= int64_t{2} * 4 * n_warps * most_blocks)
    p.split /= 2;
  return static_cast<int>(min(int64_t{blocks_for(p.n_tiles, n_warps / p.split)}, int64_t{most_blocks}));
}

}  // namespace ingot::cuda::matvec_tiles

namespace ingot::cuda {

// dot_codes.cu, for one row of activations; matvec() calls it.
inline constexpr int kMostCodeColumns = 16 << 10;
bool can_dot_codes(const PackedWeight& w);
void dot_codes(const matvec_tiles::Params& p, bool gated, cudaStream_t stream);

}  // namespace ingot::cuda
