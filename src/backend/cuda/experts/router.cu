// The router's product for a few tokens and their choice of experts, as one kernel, because two kernels take longer to
// begin and end than to run. A thread block cluster handles a token, and a warp one output at a time. The logits are
// collected in the first block of the cluster, where a warp chooses the experts.
#include <algorithm>

#include "backend/cuda/cluster/cluster.cuh"
#include "backend/cuda/experts/experts.h"
#include "backend/cuda/experts/route_token.cuh"
#include "backend/cuda/launch.cuh"

namespace ingot::cuda {
namespace {

constexpr int kWarps = 16, kMaxBlocks = 8;                  // in a cluster; every device allows 8 blocks
constexpr int kAhead = 8, kChunk = 32 * 8;                  // loads of a lane in flight; elements in one load of a warp
constexpr int64_t kMaxTokens = 16, kMaxColumns = 16 << 10;  // each token reads the whole router from the L2 cache

struct Params {
  const half *w, *x;
  const float* bias;
  RowNorm norm;
  int64_t x_stride;
  int n_in;
  Route route;
};

__device__ __forceinline__ void store_in(uint32_t place, float v) {
  if constexpr (kArch >= 900) asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(place), "f"(v) : "memory");
}

// The same as norm_row(), with less code.
__device__ __forceinline__ void norm_input(const Params& p, half* x, float* reduce) {
  const float4 *from = reinterpret_cast<const float4*>(p.norm.x),
               *weight = reinterpret_cast<const float4*>(p.norm.weight);
  const int first = static_cast<int>(threadIdx.x), n = p.n_in / 4;
  float4 kept{};
  float squares = 0;
#pragma unroll 1
  for (int i = n - 1 - first; i >= 0; i -= 32 * kWarps) {  // backwards, because the last elements are written first
    kept = __ldcg(from + i);
    squares += kept.x * kept.x + kept.y * kept.y + kept.z * kept.z + kept.w * kept.w;
  }
  const float inverse = 1.0f / sqrtf(block_sum(squares, reduce) / static_cast<float>(p.n_in) + p.norm.eps);
#pragma unroll 1
  for (int i = (n - 1 - first) % (32 * kWarps), j = 0; first < n && i < n; i += 32 * kWarps, ++j) {
    const float4 v = j == 0 ? kept : __ldcg(from + i), w = weight[i];
    const half2 low = __halves2half2(from_float<half>(v.x * inverse * w.x), from_float<half>(v.y * inverse * w.y));
    const half2 high = __halves2half2(from_float<half>(v.z * inverse * w.z), from_float<half>(v.w * inverse * w.w));
    reinterpret_cast<uint2*>(x)[i] = make_uint2(bits_of(low), bits_of(high));
    if (blockIdx.x == 0) reinterpret_cast<uint2*>(p.norm.y)[i] = make_uint2(bits_of(low), bits_of(high));
  }
}

__global__ void __launch_bounds__(32 * kWarps) router_kernel(const __grid_constant__ Params p) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) float shared[];  // memory for the choice, with the logits first; then the activations
  __shared__ float reduce[33];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, stride = static_cast<int>(gridDim.x) * kWarps;
  const int first = static_cast<int>(blockIdx.x) * kWarps + warp, n_experts = p.route.n_experts;
  const int64_t token = blockIdx.y;
  half* x = reinterpret_cast<half*>(shared + (route_floats(n_experts) + 3) / 4 * 4);
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  uint4 ahead[kAhead];
  const auto load = [&](int out, int column) {
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int at = column + j * kChunk + 8 * lane;
      ahead[j] = out < n_experts && at < p.n_in ? load_stream(p.w + int64_t{out} * p.n_in + at) : uint4{};
    }
  };
  load(first, 0);
  wait_for_previous();
  let_next_start();
  if (p.norm.x != nullptr) {
    norm_input(p, x, reduce);
  } else {
    const half* from = p.x + token * p.x_stride;
    for (int i = 8 * static_cast<int>(threadIdx.x); i < p.n_in; i += 8 * 32 * kWarps)
      *reinterpret_cast<uint4*>(x + i) = __ldcg(reinterpret_cast<const uint4*>(from + i));
  }
  __syncthreads();
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");  // all blocks have started
  const uint32_t logits = cluster::place_in(shared_address(shared), 0);
  for (int out = first; out < n_experts; out += stride) {
    float sum = 0;
    for (int column = 0; column < p.n_in; column += kAhead * kChunk) {
      if (out > first || column > 0) load(out, column);
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int at = column + j * kChunk + 8 * lane;
        if (at < p.n_in) sum = dot8(ahead[j], *reinterpret_cast<const uint4*>(x + at), sum);
      }
    }
    sum = warp_sum(sum);
    if (lane == 0) store_in(logits + 4 * out, sum + (p.bias != nullptr ? p.bias[out] : 0.0f));
  }
  cluster::sync();
  if (blockIdx.x == 0 && warp == 0) route_token(p.route, token, shared, shared, lane);
#endif
}

}  // namespace

bool can_route_at_once(const Device& device, const PackedWeight& w, int64_t n_tokens) {
  return device.chip().has_clusters && w.layout == Layout::kDense && !w.f32 && w.n_in % 8 == 0 &&
         w.n_in <= kMaxColumns && w.n_out <= kMaxExperts && n_tokens <= kMaxTokens &&
         reinterpret_cast<uintptr_t>(w.data) % 16 == 0;
}

void route_at_once(const Router& r, const RouteArgs& args, Device& device) {
  CHECK(can_route_at_once(device, *r.w, r.x.rows) && r.x.dtype == DType::kF16 && r.x.cols == r.w->n_in &&
        r.x.stride % 8 == 0);
  CHECK(r.norm == nullptr || r.x.rows == 1);
  if (r.x.rows == 0) return;
  Params p{};
  p.w = static_cast<const half*>(r.w->data), p.x = static_cast<const half*>(r.x.data);
  p.bias = r.bias;
  p.norm = row_norm_of(r.norm);
  p.x_stride = r.x.stride, p.n_in = static_cast<int>(r.x.cols);
  p.route = route_of(r.ids, r.weights, r.w->n_out, args);
  unsigned n_blocks = 1;
  while (n_blocks < kMaxBlocks && static_cast<int>(n_blocks) * kWarps < p.route.n_experts) n_blocks *= 2;
  const int n_floats = (route_floats(p.route.n_experts) + 3) / 4 * 4;
  const size_t shared = static_cast<size_t>(n_floats) * sizeof(float) + static_cast<size_t>(p.n_in) * sizeof(half);
  launch_clusters(device, router_kernel, dim3(n_blocks, static_cast<unsigned>(r.x.rows)), dim3(n_blocks, 1, 1),
                  32 * kWarps, shared, p);
}

}  // namespace ingot::cuda
