// The splits of a row's keys to its result: each is brought to the largest of their maxima. One block a row. Threads
// take 4 columns each, and where heads are narrow several threads share the splits of a column.
#include "backend/cuda/attention/attention.cuh"

namespace ingot::cuda {

using namespace attention;

namespace {

constexpr int kSharing = 8;     // threads that share a column, if there are so many
constexpr int kThreads = 1024;  // most of a block

struct Row {
  float most, total;
};

// Every warp reads the maxima and totals of all splits; the first writes down what each split is multiplied by.
__device__ Row weigh(float* weights, const float2* stats, int n) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float most = kNone, total = 0;
  for (int i = lane; i < n; i += 32) most = fmaxf(most, stats[i].x);
#pragma unroll
  for (int i = 16; i > 0; i /= 2) most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, i));
  for (int i = lane; i < n; i += 32) {
    const float2 one = stats[i];
    const float weight = exp2f(one.x - most);
    total += weight * one.y;
    if (warp == 0) weights[i] = weight;
  }
  return {most, warp_sum(total)};
}

__device__ __forceinline__ void add(float4& sum, float weight, const float4& v) {
  sum.x += weight * v.x, sum.y += weight * v.y, sum.z += weight * v.z, sum.w += weight * v.w;
}

__global__ void __launch_bounds__(kThreads) merge_kernel(const __grid_constant__ Params p, int n_sharing) {
  extern __shared__ __align__(16) float4 shared[];  // [n_sharing, n_quads] sums, then [n_splits] weights
  start_dependent();
  const int n_quads = p.kv.head_dim / 4, quad = threadIdx.x % n_quads, share = threadIdx.x / n_quads;
  const int row_block = blockIdx.x / p.rows, row_of_block = blockIdx.x % p.rows, head = blockIdx.y, seq = blockIdx.z;
  const int token0 = p.batch.q_start[seq], q_len = p.batch.q_start[seq + 1] - token0, n_rows = q_len * p.group;
  if (n_rows > p.most_short || static_cast<int>(blockIdx.x) >= n_rows) return;
  const int row0 = row_block * p.rows, last_row = min(row0 + p.rows, n_rows) - 1;
  const int n = Split(p, p.batch.kv_len[seq], q_len, row0, last_row).n_active;
  if (n == 1) return;  // the row is there
  const int64_t part = first_part(p, seq, head, row_block, row_of_block);
  auto* weights = reinterpret_cast<float*>(shared + n_sharing * n_quads);
  const Row row = weigh(weights, p.part_stats + part, n);
  __syncthreads();
  float4 sum{};
  if (share < n_sharing) {
    const auto* sums = reinterpret_cast<const float4*>(p.part_sums + part * p.kv.head_dim);
#pragma unroll 8
    for (int i = share; i < n; i += n_sharing) add(sum, weights[i], sums[i * n_quads + quad]);
    shared[share * n_quads + quad] = sum;
  }
  __syncthreads();
  if (share > 0) return;
  for (int i = 1; i < n_sharing; ++i) add(sum, 1, shared[i * n_quads + quad]);
  const int query_head = head * p.group + static_cast<int>(blockIdx.x) % p.group;
  const float inverse = 1.0f / with_sink(p, row.total, row.most, query_head);
  const int64_t at = (token0 + static_cast<int>(blockIdx.x) / p.group) * p.y_stride + query_head * p.kv.head_dim + 4 * quad;
  store(p, at, sum.x * inverse), store(p, at + 1, sum.y * inverse);
  store(p, at + 2, sum.z * inverse), store(p, at + 3, sum.w * inverse);
}

}  // namespace

void merge_splits(const Params& p, const AttentionPlan& plan, Device& device) {
  if (p.n_splits == 1) return;
  const int n_quads = p.kv.head_dim / 4, n_sharing = max(1, min(kSharing, kThreads / n_quads));
  const int n_threads = (n_quads * n_sharing + 31) / 32 * 32;
  const size_t shared = static_cast<size_t>(n_sharing * n_quads) * sizeof(float4) +
                        static_cast<size_t>(p.n_splits) * sizeof(float);
  const dim3 grid(static_cast<unsigned>(p.rows * p.n_row_blocks), static_cast<unsigned>(p.kv.n_kv_heads),
                  static_cast<unsigned>(plan.n_seqs));
  launch(device, merge_kernel, grid, n_threads, shared, p, n_sharing);
}

}  // namespace ingot::cuda
