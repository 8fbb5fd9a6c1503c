// Merges the splits of a row's keys: each split is rescaled to the largest of their maxima. A block merges up to 128
// columns of a row, 4 per lane. Its warps share the splits.
#include <algorithm>

#include "backend/cuda/attention/attention.cuh"

namespace ingot::cuda {

using namespace attention;

namespace {

constexpr int kMergeWarps = 16;  // at most

struct Row {
  float row_max, total;
};

// Every warp reads the maxima and totals of all splits. The first warp stores the factor of each split.
__device__ Row weigh(float* weights, const float2* stats, int n) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float row_max = kNone, total = 0;
  for (int i = lane; i < n; i += 32) row_max = fmaxf(row_max, stats[i].x);
#pragma unroll
  for (int i = 16; i > 0; i /= 2) row_max = fmaxf(row_max, __shfl_xor_sync(0xFFFFFFFFu, row_max, i));
  for (int i = lane; i < n; i += 32) {
    const float2 one = stats[i];
    const float weight = exp2f(one.x - row_max);
    total += weight * one.y;
    if (warp == 0) weights[i] = weight;
  }
  return {row_max, warp_sum(total)};
}

__device__ __forceinline__ void add(float4& sum, float weight, const float4& v) {
  sum.x += weight * v.x, sum.y += weight * v.y, sum.z += weight * v.z, sum.w += weight * v.w;
}

__global__ void __launch_bounds__(32 * kMergeWarps) merge_kernel(const __grid_constant__ Params p, int n_parts) {
  extern __shared__ float weights[];  // [n_splits]
  __shared__ float4 sums[kMergeWarps][32];
  start_dependent();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
  const int n_quads = p.kv.head_dim / 4;
  const int row = static_cast<int>(blockIdx.x) / n_parts, quad = static_cast<int>(blockIdx.x) % n_parts * 32 + lane;
  const int row_block = row / p.blocks.rows, head = blockIdx.y, seq = blockIdx.z;
  const int token0 = p.batch.q_start[seq], q_len = p.batch.q_start[seq + 1] - token0, n_rows = q_len * p.group;
  if (!takes(p, n_rows) || row >= n_rows) return;
  const int row0 = row_block * p.blocks.rows, last_row = min(row0 + p.blocks.rows, n_rows) - 1;
  const int n = active_splits(p, span_of(p, p.batch.kv_len[seq], q_len, row0, last_row));
  if (n == 1) return;  // the row is already complete
  const int64_t part = first_part(p, seq, head, row_block, row % p.blocks.rows);
  const Row whole = weigh(weights, p.part_stats + part, n);
  __syncthreads();
  const auto* from = reinterpret_cast<const float4*>(p.part_sums + part * p.kv.head_dim) + quad;
  float4 sum{};
#pragma unroll 8
  for (int i = warp; i < n; i += n_warps)
    if (quad < n_quads) add(sum, weights[i], from[i * n_quads]);
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || quad >= n_quads) return;
  for (int i = 1; i < n_warps; ++i) add(sum, 1, sums[i][lane]);
  const int query_head = head * p.group + row % p.group;
  const float inverse = 1.0f / with_sink(p, whole.total, whole.row_max, query_head);
  const int64_t at = (token0 + row / p.group) * p.y_stride + query_head * p.kv.head_dim + 4 * quad;
  store(p, at, sum.x * inverse), store(p, at + 1, sum.y * inverse);
  store(p, at + 2, sum.z * inverse), store(p, at + 3, sum.w * inverse);
}

}  // namespace

void merge_splits(const Params& p, const AttentionPlan& plan, Device& device) {
  if (p.blocks.n_splits == 1) return;
  const int n_parts = (p.kv.head_dim + 127) / 128;
  const int n_rows = std::min(p.blocks.rows * p.blocks.n_row_blocks, plan.max_q_len * p.group),
            n_warps = std::min(kMergeWarps, p.blocks.n_splits);
  const dim3 grid(static_cast<unsigned>(n_rows * n_parts), static_cast<unsigned>(p.kv.n_kv_heads),
                  static_cast<unsigned>(plan.n_seqs));
  launch(device, merge_kernel, grid, 32 * n_warps, static_cast<size_t>(p.blocks.n_splits) * sizeof(float), p, n_parts);
}

}  // namespace ingot::cuda
