// The product of one row of activations with dense weights: a warp takes one or two rows of weights after another and reads each
// straight through, 512 bytes a load. It loads one batch while it uses the one before, across the ends of rows, and the first
// before the kernel in front has ended. The activations lie in shared memory.
#include <algorithm>

#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/memory.h"

namespace ingot::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kAhead = 8;       // loads of a batch
constexpr int kChunk = 32 * 8;  // elements of a load of a warp

struct Job {
  const half* w;
  const float* bias;
  void* y;
  int64_t n_out;
  int first_task;
};

struct Params {
  Job jobs[3];
  int n_jobs, n_tasks;
  const half* x;
  RowNorm norm;  // whose result x is, if any
  int n_in;
  bool y_f32, accumulate;
  bool rehearses;  // device.cuh
  int act;
};

// A task: kRows neighbours of a job, or with kGated the same row of the first two jobs.
template <int kRows, bool kGated>
struct Task {
  int job = 0;
  int64_t row;

  __device__ Task(const Params& p, int task) {
    if constexpr (kGated) {
      row = task;
    } else {
      for (int i = 1; i < p.n_jobs; ++i)
        if (task >= p.jobs[i].first_task) job = i;
      row = int64_t{task - p.jobs[job].first_task} * kRows;
    }
  }
  __device__ const Job& job_of(const Params& p, int r) const { return p.jobs[kGated ? r : job]; }
  // The last rows of a task may be missing: the one before stands in for them, and is not written.
  __device__ int64_t row_of(const Params& p, int r) const {
    return kGated ? row : min(row + r, job_of(p, r).n_out - 1);
  }
};

template <int kRows>
struct Batch {
  static constexpr int kLoads = kAhead / kRows;  // of a row
  uint4 w[kRows][kLoads];
};

template <int kRows, bool kGated>
struct Stream {
  const Params& p;
  const int lane, stride;
  int task, chunk = 0;  // of the next batch
  const half* w[kRows];

  __device__ Stream(const Params& params, int lane_of, int first, int stride_of)
      : p(params), lane(lane_of), stride(stride_of), task(first) {
    aim();
  }
  __device__ void aim() {
    if (task >= p.n_tasks) return;
    const Task<kRows, kGated> at(p, task);
#pragma unroll
    for (int r = 0; r < kRows; ++r) w[r] = at.job_of(p, r).w + at.row_of(p, r) * p.n_in + 8 * lane;
  }
  __device__ __forceinline__ void load(Batch<kRows>& batch) {
    if (task >= p.n_tasks) return;
#pragma unroll
    for (int i = 0; i < Batch<kRows>::kLoads; ++i) {
      const int column = (chunk + i) * kChunk;
      const bool in = column + 8 * lane < p.n_in;
#pragma unroll
      for (int r = 0; r < kRows; ++r) batch.w[r][i] = in ? load_stream(w[r] + column) : uint4{};
    }
    chunk += Batch<kRows>::kLoads;
    if (chunk * kChunk >= p.n_in) {
      chunk = 0;
      task += stride;
      aim();
    }
  }
};

__device__ __forceinline__ void put(const Params& p, const Job& job, int64_t row, float value) {
  if (p.y_f32) {
    float* y = static_cast<float*>(job.y) + row;
    *y = p.accumulate ? *y + value : value;
  } else {
    half* y = static_cast<half*>(job.y) + row;
    *y = from_float<half>(p.accumulate ? __half2float(*y) + value : value);
  }
}

// What a warp is summing up.
template <int kRows, bool kGated>
struct Sums {
  const Params& p;
  const half* x;
  const bool real;  // else nothing is written
  const int lane, stride;
  int task, chunk = 0;
  float sum[kRows] = {};

  __device__ Sums(const Params& params, const half* x_of, bool is_real, int lane_of, int first, int stride_of)
      : p(params), x(x_of), real(is_real), lane(lane_of), stride(stride_of), task(first) {}

  __device__ __forceinline__ void add(const Batch<kRows>& batch) {
#pragma unroll
    for (int i = 0; i < Batch<kRows>::kLoads; ++i) {
      const int column = (chunk + i) * kChunk + 8 * lane;
      if (column >= p.n_in) break;
      const uint4 v = *reinterpret_cast<const uint4*>(x + column);
#pragma unroll
      for (int r = 0; r < kRows; ++r) sum[r] = dot8(batch.w[r][i], v, sum[r]);
    }
    chunk += Batch<kRows>::kLoads;
    if (chunk * kChunk < p.n_in) return;
    finish();
    chunk = 0;
    task += stride;
  }
  __device__ __forceinline__ void finish() {
    float total[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      total[r] = warp_sum(sum[r]);
      sum[r] = 0;
    }
    if (lane != 0 || !real) return;
    const Task<kRows, kGated> at(p, task);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float* bias = at.job_of(p, r).bias;
      if (bias != nullptr) total[r] += bias[at.row_of(p, r)];
    }
    if constexpr (kGated) {
      put(p, p.jobs[0], at.row, act_mul(total[0], total[1], p.act));
    } else {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        if (at.row + r < p.jobs[at.job].n_out) put(p, p.jobs[at.job], at.row + r, total[r]);
    }
  }
};

template <int kRows, bool kGated>
__global__ void __launch_bounds__(kWarps * 32, 2) dot_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(16) half shared[];  // [n_in] activations
  __shared__ float reduce[33];
  let_next_start();
  const int lane = threadIdx.x % 32, first = static_cast<int>(threadIdx.x / 32 * gridDim.x + blockIdx.x);
  const int stride = static_cast<int>(gridDim.x) * kWarps;
  Stream<kRows, kGated> stream(p, lane, first, stride);
  Batch<kRows> even, odd;
  stream.load(even);
#pragma unroll 1
  for (int pass = p.rehearses ? 0 : 1; pass < 2; ++pass) {
    const bool real = pass == 1;
    if (real) wait_for_previous();
    if (p.norm.x != nullptr) {
      norm_row(p.norm, p.n_in, p.n_in, reduce, real, [&](int i, uint2 v) { *reinterpret_cast<uint2*>(shared + 4 * i) = v; });
    } else {
#pragma unroll 4
      for (int i = threadIdx.x * 8; i < p.n_in; i += kWarps * 32 * 8)
        *reinterpret_cast<uint4*>(shared + i) = __ldcg(reinterpret_cast<const uint4*>(p.x + i));
    }
    __syncthreads();
    Sums<kRows, kGated> sums(p, shared, real, lane, first, stride);
    while (sums.task < p.n_tasks) {
      if (real) stream.load(odd);
      sums.add(even);
      if (!real || sums.task >= p.n_tasks) break;
      stream.load(even);
      sums.add(odd);
    }
    __syncthreads();
  }
}

template <int kRows, bool kGated>
void start(const Params& p, int n_blocks, cudaStream_t stream) {
  const size_t shared = static_cast<size_t>(p.n_in) * sizeof(half);
  static const cudaError_t set =
      cudaFuncSetAttribute(dot_kernel<kRows, kGated>, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostDotColumns * 2);
  check(set, "cudaFuncSetAttribute");
  launch(dot_kernel<kRows, kGated>, dim3(static_cast<unsigned>(n_blocks)), kWarps * 32, shared, stream, p);
}

}  // namespace

void dot_rows(const Matvec& m, cudaStream_t stream) {
  CHECK(m.x.rows == 1 && m.x.cols <= kMostDotColumns);
  const bool gated = m.gate >= 0;
  int64_t n_rows = 0;
  for (int i = 0; i < m.n_jobs; ++i) n_rows += m.jobs[i].w->n_out;
  const int most_blocks = 2 * n_multiprocessors();
  const int per_task = gated || n_rows <= most_blocks * kWarps ? 1 : 2;
  Params p{};
  for (int i = 0; i < m.n_jobs; ++i) {
    const PackedWeight& w = *m.jobs[i].w;
    p.jobs[i] = {static_cast<const half*>(w.data), m.jobs[i].bias, m.y[gated ? 0 : i].data, w.n_out, p.n_tasks};
    if (!gated || i == 0) p.n_tasks += static_cast<int>((w.n_out + per_task - 1) / per_task);
  }
  p.n_jobs = m.n_jobs;
  p.x = static_cast<const half*>(m.x.data);
  p.norm = row_norm_of(m.norm);
  p.n_in = static_cast<int>(m.x.cols);
  p.y_f32 = m.y[0].dtype == DType::kF32;
  p.accumulate = m.accumulate;
  p.act = m.gate;
  const int n_blocks = std::min(static_cast<int>(blocks_for(p.n_tasks, kWarps)), most_blocks);
  p.rehearses = has_dependent_launch() && n_blocks <= n_multiprocessors();
  if (gated) return start<2, true>(p, n_blocks, stream);
  per_task == 1 ? start<1, false>(p, n_blocks, stream) : start<2, false>(p, n_blocks, stream);
}

}  // namespace ingot::cuda
