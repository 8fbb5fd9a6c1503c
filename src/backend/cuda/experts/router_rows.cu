// The router's product for 17 to 64 tokens, their choice of experts and the order of the rows by expert as one kernel,
// because each of these takes longer to begin and end than to run. One thread block cluster does it all. Each block
// multiplies some of the columns, and the blocks exchange their sums. Then a warp chooses the experts of a token, and
// the first block sorts the rows.
#include <algorithm>

#include "backend/cuda/cluster/cluster.cuh"
#include "backend/cuda/experts/experts.h"
#include "backend/cuda/experts/order.cuh"
#include "backend/cuda/experts/route_token.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/matmul/matvec_step.cuh"

namespace ingot::cuda {
namespace {

constexpr int kBlocks = 8, kWarps = 16, kThreads = 32 * kWarps;  // in the cluster, in a block
constexpr int kTokens = 64, kOwnTokens = kTokens / kBlocks;      // of the step, of a block that chooses experts
constexpr int kPieceCols = 32, kAhead = 8;                       // columns of one load of a warp; loads in flight
constexpr int kUnitExperts = 16, kUnitTokens = 32;               // the products of a warp
constexpr int kMaxRouterExperts = 256;

struct Params {
  const half *w, *x;  // [n_experts, n_in], [n_tokens, n_in]
  const float* bias;  // [n_experts] or null
  int64_t x_stride;
  int n_in, n_tokens, slice;  // slice: columns of a block
  Route route;
  ExpertOrder order;
};

// Bytes of a row of activations in shared memory. Two rows and four lanes then touch all banks once.
__host__ __device__ inline int row_bytes(int slice) { return 2 * slice + (slice % 64 == 0 ? 64 : 0); }
__host__ __device__ inline int units_of_experts(int n_experts) { return (n_experts + kUnitExperts - 1) / kUnitExperts; }
// Floats from one token's sums to the next, against bank conflicts.
__host__ __device__ inline int sum_floats(int n_experts) { return units_of_experts(n_experts) * kUnitExperts + 4; }
// Bytes of the activations. Later, the memory of the choices and of the sorting.
__host__ __device__ inline int first_bytes(int slice, int n_experts) {
  const int of_choices = (kOwnTokens * route_floats(n_experts) + 3) / 4 * 16, of_sorting = 4 * sort_ints(n_experts);
  return max(kTokens * row_bytes(slice), max(of_choices, (of_sorting + 15) / 16 * 16));
}

// Copies this block's columns of all activations, with zeros for tokens and columns that do not exist.
__device__ __forceinline__ void copy_input(const Params& p, uint32_t to, int first_column) {
  const int n_pieces = p.slice / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kTokens * n_pieces; i += kThreads) {
    const int token = i / n_pieces, k = i % n_pieces * 8;
    const bool in = token < p.n_tokens && first_column + k < p.n_in;
    matvec_step::copy16(to + token * row_bytes(p.slice) + 2 * k, p.x + (in ? token * p.x_stride + first_column + k : 0),
                        in);
  }
  matvec_step::end_copies();
}

// The lane's weights of 16 experts, in kAhead pieces of 32 columns. Lane 4g + t has columns 8t to 8t + 7 of experts g
// and g + 8.
struct Weights {
  uint4 rows[kAhead][2];

  __device__ __forceinline__ void load(const Params& p, int first_expert, int first_column, int n_columns) {
    const int lane = threadIdx.x % 32, expert = first_expert + lane / 4, k = 8 * (lane % 4);
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int column = first_column + j * kPieceCols + k;
      const bool in = j * kPieceCols < n_columns && column < p.n_in;
#pragma unroll
      for (int r = 0; r < 2; ++r)
        rows[j][r] = in && expert + 8 * r < p.route.n_experts
                         ? load_stream(p.w + int64_t{expert + 8 * r} * p.n_in + column)
                         : uint4{};
    }
  }
};

// Multiplies 16 experts with 32 tokens of x, the block's columns in shared memory, and writes sums [kTokens,
// n_experts]. `ahead` has the first weights.
__device__ __forceinline__ void multiply(const Params& p, float* sums, const char* x, Weights& ahead, int first_expert,
                                         int first_token, int first_column) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  float acc[kUnitTokens / 8][4] = {};
  const char* row = x + (first_token + g) * row_bytes(p.slice) + 16 * t;
  for (int column = 0; column < p.slice; column += kAhead * kPieceCols) {
    if (column > 0) ahead.load(p, first_expert, first_column + column, p.slice - column);
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (column + j * kPieceCols >= p.slice) break;
      const uint4 a = ahead.rows[j][0], b = ahead.rows[j][1];
#pragma unroll
      for (int i = 0; i < kUnitTokens / 8; ++i) {
        const uint4 v =
            *reinterpret_cast<const uint4*>(row + 8 * i * row_bytes(p.slice) + 2 * (column + j * kPieceCols));
        mma(acc[i], a.x, b.x, a.y, b.y, v.x, v.y);
        mma(acc[i], a.z, b.z, a.w, b.w, v.z, v.w);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kUnitTokens / 8; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      sums[(first_token + 8 * i + 2 * t + e % 2) * sum_floats(p.route.n_experts) + first_expert + g + e / 2 * 8] =
          acc[i][e];
}

// Adds up the sums of all blocks for the tokens of this block, and puts the logits where route_token() needs them.
__device__ __forceinline__ void collect_logits(const Params& p, float* choices, uint32_t sums, int first_token) {
  const int n_experts = p.route.n_experts, n_quads = (n_experts + 3) / 4;
  for (int i = static_cast<int>(threadIdx.x); i < kOwnTokens * n_quads; i += kThreads) {
    const int token = i / n_quads, expert = i % n_quads * 4;
    const uint32_t from = sums + 4 * ((first_token + token) * sum_floats(n_experts) + expert);
    float4 parts[kBlocks];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) parts[b] = load_of_block(from, b);
    float logits[4] = {};
#pragma unroll
    for (int b = 0; b < kBlocks; ++b)
      logits[0] += parts[b].x, logits[1] += parts[b].y, logits[2] += parts[b].z, logits[3] += parts[b].w;
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (expert + e < n_experts)
        choices[token * route_floats(n_experts) + expert + e] =
            logits[e] + (p.bias != nullptr ? p.bias[expert + e] : 0.0f);
  }
}

__global__ void __launch_bounds__(kThreads) router_rows_kernel(const __grid_constant__ Params p) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_experts = p.route.n_experts;
  const int first_column = static_cast<int>(blockIdx.x) * p.slice,
            first_token = static_cast<int>(blockIdx.x) * kOwnTokens;
  const int n_abreast = units_of_experts(n_experts),
            n_units = n_abreast * ((p.n_tokens + kUnitTokens - 1) / kUnitTokens);
  float* sums = reinterpret_cast<float*>(shared + first_bytes(p.slice, n_experts));
  const auto expert_of = [&](int unit) { return unit % n_abreast * kUnitExperts; };
  Weights ahead;
  ahead.load(p, expert_of(warp), first_column, p.slice);
  wait_for_previous();
  let_next_start();
  copy_input(p, shared_address(shared), first_column);
  matvec_step::await_copies<0>();
  __syncthreads();
  for (int unit = warp; unit < n_units; unit += kWarps) {
    if (unit > warp) ahead.load(p, expert_of(unit), first_column, p.slice);
    multiply(p, sums, shared, ahead, expert_of(unit), unit / n_abreast * kUnitTokens, first_column);
  }
  cluster::sync();
  float* choices = reinterpret_cast<float*>(shared);
  collect_logits(p, choices, shared_address(sums), first_token);
  __syncthreads();
  if (warp < kOwnTokens && first_token + warp < p.n_tokens) {
    float* own = choices + warp * route_floats(n_experts);
    route_token(p.route, first_token + warp, own, own, lane);
  }
  cluster::sync();  // all ids are written, and no block reads sums any more
  if (blockIdx.x == 0)
    sort_rows(p.order, p.route.ids, int64_t{p.n_tokens} * p.route.n_used, p.route.n_own,
              reinterpret_cast<int*>(shared));
#endif
}

int slice_of(int64_t n_in) {
  constexpr int64_t kUnit = kBlocks * kPieceCols;
  return static_cast<int>((n_in + kUnit - 1) / kUnit) * kPieceCols;
}

size_t shared_bytes(const PackedWeight& router) {
  const int n_experts = static_cast<int>(router.n_out), n_sums = kTokens * sum_floats(n_experts);
  return static_cast<size_t>(first_bytes(slice_of(router.n_in), n_experts)) +
         static_cast<size_t>(n_sums) * sizeof(float);
}

}  // namespace

bool can_route_and_sort(const Device& device, const PackedWeight& w, int64_t n_tokens) {
  constexpr int64_t kMaxColumns = 16 << 10;  // so that sizes are ints
  return device.chip().has_clusters && w.layout == Layout::kDense && !w.f32 && w.n_in % 8 == 0 &&
         w.n_in <= kMaxColumns && w.n_out <= kMaxRouterExperts && n_tokens <= kTokens &&
         reinterpret_cast<uintptr_t>(w.data) % 16 == 0 && shared_bytes(w) <= device.most_shared();
}

void route_and_sort(const Router& r, const RouteArgs& args, const ExpertOrder& order, Device& device) {
  CHECK(can_route_and_sort(device, *r.w, r.x.rows) && r.x.dtype == DType::kF16 && r.x.cols == r.w->n_in &&
        r.x.stride % 8 == 0 && r.norm == nullptr);
  if (r.x.rows == 0) return;
  Params p{};
  p.w = static_cast<const half*>(r.w->data), p.x = static_cast<const half*>(r.x.data);
  p.bias = r.bias;
  p.x_stride = r.x.stride, p.n_in = static_cast<int>(r.x.cols), p.n_tokens = static_cast<int>(r.x.rows);
  p.slice = slice_of(p.n_in);
  p.route = route_of(r.ids, r.weights, r.w->n_out, args);
  p.order = order;
  launch_clusters(device, router_rows_kernel, dim3(kBlocks), dim3(kBlocks, 1, 1), kThreads, shared_bytes(*r.w), p);
}

}  // namespace ingot::cuda
