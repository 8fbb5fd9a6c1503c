// Independent products of one row each with dense weights, in one launch. Long rows of weights are read by a warp each;
// a warp has several rows, and loads the next pieces while it uses the last, also across the ends of rows and products.
// Short rows are read by as many lanes as a row has work for; a block has rows of one product. Both kernels begin to
// read before the previous kernel has ended.
#include <algorithm>
#include <bit>

#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/memory.h"

namespace ingot::cuda {
namespace {

constexpr int kJobWarps = 8, kJobThreads = 32 * kJobWarps, kJobBlocks = 2;   // blocks of a multiprocessor
constexpr int kJobPack = 8;                                                  // halves of one read of a lane
constexpr int kWarpRead = 32 * kJobPack;                                     // halves of one read of a warp
constexpr int kShortRow = 4 * kWarpRead, kFewestLanes = 8, kShortReads = 8;  // reads of a lane at once

struct JobParams {
  struct Job {
    const half *w, *x;
    const float* bias;
    void* y;
    int n_in, n_out;
    int first;  // row of all products, or block if rows are short
    int lanes;  // of a short row
    int x_at;   // place of x in shared memory, in halves
    int act;    // an Activation, or -1
    float cap;
    bool y_f32;

    __device__ void put(int row, float sum) const {
      if (bias != nullptr) sum += bias[row];
      if (act >= 0) sum = activate(sum, act);
      if (cap != 0) sum = cap * tanhf(sum / cap);
      if (y_f32)
        static_cast<float*>(y)[row] = sum;
      else
        static_cast<half*>(y)[row] = from_float<half>(sum);
    }
  } jobs[kMaxDotJobs];
  int n_jobs, n_rows;
};

__device__ __forceinline__ void copy_x(half* to, const JobParams::Job& job) {
  for (int i = threadIdx.x * kJobPack; i < job.n_in; i += kJobThreads * kJobPack)
    *reinterpret_cast<uint4*>(to + i) = __ldcg(reinterpret_cast<const uint4*>(job.x + i));
}

// A warp's place in its rows, which are a stride apart.
template <int kReads>
struct Place {
  const JobParams& p;
  const int stride, lane;
  int row, job = 0, column;  // row: of all products; column: the lane's first one of the next reads

  __device__ Place(const JobParams& params, int first, int stride_of, int lane_of)
      : p(params), stride(stride_of), lane(lane_of), row(first) {
    begin_row();
  }
  __device__ __forceinline__ void begin_row() {
    column = kJobPack * lane;
    while (job + 1 < p.n_jobs && row >= p.jobs[job + 1].first) ++job;
  }
  __device__ __forceinline__ bool in(int i) const { return column + i * kWarpRead < p.jobs[job].n_in; }
  // Returns whether the row has ended.
  __device__ __forceinline__ bool advance() {
    column += kReads * kWarpRead;
    if (column - kJobPack * lane < p.jobs[job].n_in) return false;
    row += stride;
    return true;
  }
};

template <int kReads>
__device__ __forceinline__ void read_ahead(uint4 (&to)[kReads], Place<kReads>& at) {
  if (at.row >= at.p.n_rows) return;
  const JobParams::Job& job = at.p.jobs[at.job];
  const half* w = job.w + int64_t{at.row - job.first} * job.n_in + at.column;
#pragma unroll
  for (int i = 0; i < kReads; ++i) to[i] = at.in(i) ? load_stream(w + i * kWarpRead) : uint4{};
  if (at.advance()) at.begin_row();
}

template <int kReads>
__device__ __forceinline__ void use(const uint4 (&read)[kReads], Place<kReads>& at, float& sum, const half* shared) {
  const JobParams::Job& job = at.p.jobs[at.job];
  const half* x = shared + job.x_at + at.column;
#pragma unroll
  for (int i = 0; i < kReads; ++i)
    if (at.in(i)) sum = dot8(read[i], *reinterpret_cast<const uint4*>(x + i * kWarpRead), sum);
  const int row = at.row - job.first;
  if (!at.advance()) return;
  const float total = warp_sum(sum);
  if (at.lane == 0) job.put(row, total);
  sum = 0;
  at.begin_row();
}

// kReads: of a warp at once.
template <int kReads>
__global__ void __launch_bounds__(kJobThreads, kJobBlocks) long_jobs_kernel(const __grid_constant__ JobParams p) {
  extern __shared__ __align__(16) half shared[];  // the inputs
  let_next_start();
  const int lane = threadIdx.x % 32, first = static_cast<int>(threadIdx.x / 32 * gridDim.x + blockIdx.x),
            stride = static_cast<int>(gridDim.x) * kJobWarps;
  Place<kReads> ahead(p, first, stride, lane), at(p, first, stride, lane);
  uint4 even[kReads], odd[kReads];
  read_ahead(even, ahead);
  wait_for_previous();
  for (int j = 0; j < p.n_jobs; ++j)
    if (j == 0 || p.jobs[j].x_at > p.jobs[j - 1].x_at) copy_x(shared + p.jobs[j].x_at, p.jobs[j]);
  __syncthreads();
  float sum = 0;
  while (at.row < p.n_rows) {
    read_ahead(odd, ahead);
    use(even, at, sum, shared);
    if (at.row >= p.n_rows) break;
    read_ahead(even, ahead);
    use(odd, at, sum, shared);
  }
}

__global__ void __launch_bounds__(kJobThreads, 4) short_jobs_kernel(const __grid_constant__ JobParams p) {
  extern __shared__ __align__(16) half shared[];  // [n_in]
  let_next_start();
  int j = 0;
  while (j + 1 < p.n_jobs && static_cast<int>(blockIdx.x) >= p.jobs[j + 1].first) ++j;
  const JobParams::Job& job = p.jobs[j];
  const int row =
                ((static_cast<int>(blockIdx.x) - job.first) * kJobThreads + static_cast<int>(threadIdx.x)) / job.lanes,
            lane = static_cast<int>(threadIdx.x) % job.lanes, step = kJobPack * job.lanes, first = kJobPack * lane;
  const half* w = job.w + int64_t{min(row, job.n_out - 1)} * job.n_in + first;
  uint4 read[kShortReads];  // a whole row
#pragma unroll
  for (int i = 0; i < kShortReads; ++i) read[i] = first + i * step < job.n_in ? load_stream(w + i * step) : uint4{};
  wait_for_previous();
  copy_x(shared, job);
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kShortReads; ++i)
    if (first + i * step < job.n_in)
      sum = dot8(read[i], *reinterpret_cast<const uint4*>(shared + first + i * step), sum);
  for (int i = job.lanes / 2; i > 0; i /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, i);
  if (lane == 0 && row < job.n_out) job.put(row, sum);
}

JobParams::Job params_of(const DotJob& job) {
  const Product& p = *job.product;
  return {.w = static_cast<const half*>(job.w->data),
          .x = static_cast<const half*>(p.x.data),
          .bias = p.bias ? p.bias.f32() : nullptr,
          .y = p.y.data,
          .n_in = static_cast<int>(job.w->n_in),
          .n_out = static_cast<int>(job.w->n_out),
          .act = p.act ? static_cast<int>(*p.act) : -1,
          .cap = p.cap,
          .y_f32 = p.y.dtype == DType::kF32};
}

size_t halves_bytes(int n) { return static_cast<size_t>(n) * sizeof(half); }

void start_short(JobParams p, Device& device) {
  unsigned n_blocks = 0;
  int most_in = 0;
  for (int i = 0; i < p.n_jobs; ++i) {
    JobParams::Job& job = p.jobs[i];
    const auto reads = static_cast<unsigned>((job.n_in + kJobPack - 1) / kJobPack);
    job.lanes = std::clamp(static_cast<int>(std::bit_ceil((reads + kShortReads - 1) / kShortReads)), kFewestLanes, 32);
    job.first = static_cast<int>(n_blocks);
    n_blocks += blocks_for(int64_t{job.n_out} * job.lanes, kJobThreads);
    most_in = std::max(most_in, job.n_in);
  }
  launch(device, short_jobs_kernel, dim3(n_blocks), kJobThreads, halves_bytes(most_in), p);
}

void start_long(JobParams p, Device& device) {
  const auto has_batches_of = [&](int reads) {
    return std::all_of(p.jobs, p.jobs + p.n_jobs, [&](const auto& job) { return job.n_in % (reads * kWarpRead) == 0; });
  };
  int n_shared = 0;
  for (int i = 0; i < p.n_jobs; ++i) {  // neighbours with the same input share it
    JobParams::Job& job = p.jobs[i];
    job.first = p.n_rows, p.n_rows += job.n_out;
    const bool is_new = i == 0 || job.x != p.jobs[i - 1].x || job.n_in != p.jobs[i - 1].n_in;
    job.x_at = is_new ? n_shared : p.jobs[i - 1].x_at;
    n_shared += is_new ? job.n_in : 0;
  }
  const auto n_blocks =
      std::min(blocks_for(p.n_rows, kJobWarps), static_cast<unsigned>(kJobBlocks * device.n_multiprocessors()));
  launch(device, has_batches_of(5) ? long_jobs_kernel<5> : long_jobs_kernel<8>, dim3(n_blocks), kJobThreads,
         halves_bytes(n_shared), p);
}

}  // namespace

void dot_jobs(std::span<const DotJob> jobs, Device& device) {
  constexpr int kMostShared = 48 * 1024;  // halves of inputs, so that two blocks fit
  while (!jobs.empty()) {
    JobParams p{};
    bool is_short = true;
    int n_inputs = 0;
    for (const DotJob& job : jobs.first(std::min(jobs.size(), kMaxDotJobs))) {
      const auto n_in = static_cast<int>(job.w->n_in);
      if (p.n_jobs > 0 && n_inputs + n_in > kMostShared) break;
      n_inputs += n_in, is_short &= n_in <= kShortRow;
      p.jobs[p.n_jobs++] = params_of(job);
    }
    is_short ? start_short(p, device) : start_long(p, device);
    jobs = jobs.subspan(static_cast<size_t>(p.n_jobs));
  }
}

}  // namespace ingot::cuda
