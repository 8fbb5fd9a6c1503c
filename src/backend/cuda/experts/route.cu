// Chooses each token's experts, sorts the rows of a step by expert, and sums the results of the experts.
#include <algorithm>

#include "backend/cuda/experts/experts.h"
#include "backend/cuda/experts/order.cuh"
#include "backend/cuda/experts/route_token.cuh"
#include "backend/cuda/launch.cuh"

namespace ingot::cuda {
namespace {

constexpr int kWarps = 4;  // in a block, one for each token
constexpr int kOrderThreads = 1024;

// One warp for each token.
__global__ void route_kernel(const __grid_constant__ Route p, const float* logits, int64_t stride, int64_t n_tokens) {
  extern __shared__ float shared[];
  start_dependent();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t token = int64_t{blockIdx.x} * kWarps + warp;
  if (token < n_tokens) route_token(p, token, logits + token * stride, shared + warp * route_floats(p.n_experts), lane);
}

__global__ void __launch_bounds__(kOrderThreads)
    order_kernel(ExpertOrder out, const int32_t* ids, int64_t n_rows, int n_experts) {
  extern __shared__ int ints[];
  start_dependent();
  sort_rows(out, ids, n_rows, n_experts, ints);
}

// n neighbouring elements as floats.
template <int n>
struct alignas(n == 1 ? 4 : 16) Pack {
  float v[n];

  __device__ static __forceinline__ Pack load(const half* from) {
    Pack p;
    const uint4 raw = *reinterpret_cast<const uint4*>(from);
#pragma unroll
    for (int i = 0; i < n / 2; ++i) {
      const float2 pair = __half22float2(half2_of(word_of(raw, i)));
      p.v[2 * i] = pair.x, p.v[2 * i + 1] = pair.y;
    }
    return p;
  }
  __device__ static __forceinline__ Pack load(const float* from) {
    Pack p;
#pragma unroll
    for (int i = 0; i < n / 4; ++i) reinterpret_cast<float4*>(p.v)[i] = reinterpret_cast<const float4*>(from)[i];
    return p;
  }
};
template <>
struct Pack<1> {
  float v[1];

  template <class T>
  __device__ static __forceinline__ Pack load(const T* from) {
    return {to_float(*from)};
  }
};

// A thread has n neighbouring columns of a token. Results with weight 0 are not read, because nothing may have written
// them.
template <class Y, int n>
__global__ void combine_kernel(float* residual, int64_t residual_stride, const Y* y, int64_t y_stride,
                               const float* weights, int64_t weights_stride, int n_used, int64_t dim) {
  constexpr int kAtOnce = 4;
  start_dependent();
  const int64_t t = blockIdx.x, c = n * (int64_t{blockIdx.y} * blockDim.x + threadIdx.x);
  if (c >= dim) return;
  float* const to = residual + t * residual_stride + c;
  Pack<n> sum = Pack<n>::load(to);
  for (int first = 0; first < n_used; first += kAtOnce) {
    float weight[kAtOnce];
    Pack<n> part[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) weight[k] = first + k < n_used ? weights[t * weights_stride + first + k] : 0.0f;
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      part[k] = weight[k] != 0 ? Pack<n>::load(y + (t * n_used + first + k) * y_stride + c) : Pack<n>{};
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
#pragma unroll
      for (int i = 0; i < n; ++i) sum.v[i] += weight[k] * part[k].v[i];
  }
  if constexpr (n == 8) {
#pragma unroll
    for (int i = 0; i < n / 4; ++i) reinterpret_cast<float4*>(to)[i] = reinterpret_cast<const float4*>(sum.v)[i];
  } else {
    *to = sum.v[0];
  }
}

}  // namespace

void route_rows(const Tensor& ids, const Tensor& weights, const Tensor& logits, const RouteArgs& args, Device& device) {
  const Route p = route_of(ids, weights, logits.cols, args);
  if (logits.rows == 0) return;
  const size_t shared = static_cast<size_t>(kWarps * route_floats(p.n_experts)) * sizeof(float);  // 48 KiB at most
  launch(device, route_kernel, dim3(blocks_for(logits.rows, kWarps)), kWarps * 32, shared, p, logits.f32(),
         logits.stride, logits.rows);
}

ExpertTiling expert_tiling(int64_t n_rows, int64_t n_experts, bool groups, bool streams, const DeviceLimits& device) {
  constexpr size_t kForLongTiles = size_t{112} << 10;  // bytes of shared memory that tiles.cu needs for 64 rows
  if (n_rows <= n_experts && streams) return {kStreamRows, true};
  if (n_rows <= 4 * n_experts) return {8};
  if (n_rows <= 16 * n_experts) return {16};
  return {groups ? kGroupRows : device.most_shared < kForLongTiles ? 32 : 64};
}

ExpertOrder expert_order_in(void* memory, int64_t n_rows, int64_t n_own, const ExpertTiling& tiling) {
  ExpertOrder o;
  o.tile_rows = tiling.rows;
  // If most experts have rows and few have more than one tile, a block knows its expert before the rows are sorted.
  const bool few_are_empty = n_rows >= 2 * n_own, few_are_long = 2 * n_rows <= n_own * o.tile_rows;
  o.n_first = !tiling.streams && few_are_empty && few_are_long ? static_cast<int>(n_own) : 0;
  o.most_tiles = std::min(n_rows, n_own) + n_rows / o.tile_rows;
  o.n_tiles = static_cast<int32_t*>(memory);
  o.order = o.n_tiles + 1;
  o.tiles = reinterpret_cast<RowTile*>(o.order + n_rows);
  return o;
}

size_t expert_order_bytes(int64_t n_rows, int64_t n_experts) {
  return static_cast<size_t>(1 + n_rows + 3 * (std::min(n_rows, n_experts) + n_rows / 8)) * sizeof(int32_t);
}

void order_by_expert(const ExpertOrder& order, const int32_t* ids, int64_t n_rows, int64_t n_experts, Device& device) {
  CHECK(n_experts <= kMaxExperts);
  launch(device, order_kernel, dim3(1), kOrderThreads,
         static_cast<size_t>(sort_ints(static_cast<int>(n_experts))) * sizeof(int), order, ids, n_rows,
         static_cast<int>(n_experts));
}

void combine_rows(const Tensor& residual, const Tensor& y, const Tensor& weights, Device& device) {
  if (residual.rows == 0) return;
  const auto start = [&]<class Y, int n>(const Y* p) {
    const int64_t n_packs = residual.cols / n;
    const auto n_threads = static_cast<int>(std::min<int64_t>(256, (n_packs + 31) / 32 * 32));
    launch(device, combine_kernel<Y, n>, dim3(static_cast<unsigned>(residual.rows), blocks_for(n_packs, n_threads)),
           n_threads, 0, residual.f32(), residual.stride, p, y.stride, weights.f32(), weights.stride,
           static_cast<int>(weights.cols), residual.cols);
  };
  const auto on_16_bytes = [](const Tensor& x) {
    return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride % 8 == 0;
  };
  const bool packs = y.dtype == DType::kF16 && residual.cols % 8 == 0 && on_16_bytes(y) && on_16_bytes(residual);
  if (packs) return start.template operator()<half, 8>(static_cast<const half*>(y.data));
  with_type(y.dtype, [&](auto* p) {
    using Y = std::remove_pointer_t<decltype(p)>;
    start.template operator()<Y, 1>(static_cast<const Y*>(y.data));
  });
}

}  // namespace ingot::cuda
