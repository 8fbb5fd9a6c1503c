// Independent products of one row each with dense weights, in one launch. A block has the rows of weights of one
// product. Some lanes of a warp read a row: as many as the row has work for. The first reads of a row begin before the
// previous kernel has ended.
#include <algorithm>
#include <bit>

#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/memory.h"

namespace ingot::cuda {
namespace {

constexpr int kJobWarps = 8, kJobThreads = 32 * kJobWarps, kFewestLanes = 8;
constexpr int kJobPack = 8;  // halves of one read of a lane

struct JobParams {
  struct Job {
    const half *w, *x;
    const float* bias;
    void* y;
    int n_in, n_out, lanes, first_block;  // lanes: of a row
    int act;                              // an Activation, or -1
    float cap;
    bool y_f32;
  } jobs[kMaxDotJobs];
  int n_jobs;
};

// kReads: of a lane at once.
template <int kReads>
__global__ void __launch_bounds__(kJobThreads, kReads > 8 ? 2 : 4) dot_jobs_kernel(const __grid_constant__ JobParams p) {
  extern __shared__ __align__(16) half shared[];  // [n_in]
  let_next_start();
  int j = 0;
  while (j + 1 < p.n_jobs && static_cast<int>(blockIdx.x) >= p.jobs[j + 1].first_block) ++j;
  const JobParams::Job& job = p.jobs[j];
  const int row = ((static_cast<int>(blockIdx.x) - job.first_block) * kJobThreads + static_cast<int>(threadIdx.x)) / job.lanes,
            lane = static_cast<int>(threadIdx.x) % job.lanes, step = kJobPack * job.lanes;
  const half* w = job.w + int64_t{min(row, job.n_out - 1)} * job.n_in;
  uint4 read[kReads];
  const auto read_from = [&](int column) {
#pragma unroll
    for (int i = 0; i < kReads; ++i)
      read[i] = column + i * step < job.n_in ? load_stream(w + column + i * step) : uint4{};
  };
  read_from(kJobPack * lane);
  wait_for_previous();
  for (int i = threadIdx.x * kJobPack; i < job.n_in; i += kJobThreads * kJobPack)
    *reinterpret_cast<uint4*>(shared + i) = __ldcg(reinterpret_cast<const uint4*>(job.x + i));
  __syncthreads();
  float sum = 0;
  for (int column = kJobPack * lane; column < job.n_in; column += kReads * step) {
    if (column >= kReads * step) read_from(column);
#pragma unroll
    for (int i = 0; i < kReads; ++i)
      if (column + i * step < job.n_in)
        sum = dot8(read[i], *reinterpret_cast<const uint4*>(shared + column + i * step), sum);
  }
  for (int i = job.lanes / 2; i > 0; i /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, i);
  if (lane != 0 || row >= job.n_out) return;
  if (job.bias != nullptr) sum += job.bias[row];
  if (job.act >= 0) sum = activate(sum, job.act);
  if (job.cap != 0) sum = job.cap * tanhf(sum / job.cap);
  if (job.y_f32)
    static_cast<float*>(job.y)[row] = sum;
  else
    static_cast<half*>(job.y)[row] = from_float<half>(sum);
}

}  // namespace

void dot_jobs(std::span<const DotJob> jobs, Device& device) {
  CHECK(jobs.size() <= kMaxDotJobs);
  constexpr int kManyReads = 16;
  JobParams p{.n_jobs = static_cast<int>(jobs.size())};
  unsigned n_blocks = 0;
  int most_in = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const auto& [w, product] = jobs[i];
    const auto n_in = static_cast<int>(w->n_in), n_out = static_cast<int>(w->n_out);
    const auto reads = static_cast<unsigned>((n_in + kJobPack - 1) / kJobPack);
    // A lane has about eight reads of a row.
    const int lanes = std::clamp(static_cast<int>(std::bit_ceil((reads + 7) / 8)), kFewestLanes, 32);
    p.jobs[i] = {.w = static_cast<const half*>(w->data),
                 .x = static_cast<const half*>(product->x.data),
                 .bias = product->bias ? product->bias.f32() : nullptr,
                 .y = product->y.data,
                 .n_in = n_in,
                 .n_out = n_out,
                 .lanes = lanes,
                 .first_block = static_cast<int>(n_blocks),
                 .act = product->act ? static_cast<int>(*product->act) : -1,
                 .cap = product->cap,
                 .y_f32 = product->y.dtype == DType::kF32};
    n_blocks += blocks_for(int64_t{n_out} * lanes, kJobThreads);
    most_in = std::max(most_in, n_in);
  }
  const size_t shared = static_cast<size_t>(most_in) * sizeof(half);
  launch(device, most_in > kManyReads / 2 * kJobPack * 32 ? dot_jobs_kernel<kManyReads> : dot_jobs_kernel<kManyReads / 2>,
         dim3(n_blocks), kJobThreads, shared, p);
}

}  // namespace ingot::cuda
