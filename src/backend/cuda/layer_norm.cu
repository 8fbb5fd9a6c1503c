// LayerNorm of rows in registers. A row has one warp, or four if it is long. The number of rows must not decide between
// these kernels and the one for any row (rows.cu), because with --deterministic a row has the same bits in any batch.
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/rms.cuh"

namespace ingot::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32, kLongRowWarps = 4, kMostPacks = 12;  // kMostPacks: of a thread

// The sum over the warps of a row.
template <int kRowWarps>
__device__ __forceinline__ float row_sum(float v, float (&shared)[kWarps]) {
  v = warp_sum(v);
  if constexpr (kRowWarps == 1) return v;
  const int warp = threadIdx.x / 32, first = warp / kRowWarps * kRowWarps;
  __syncthreads();  // the last sums have been read
  if (threadIdx.x % 32 == 0) shared[warp] = v;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kRowWarps; ++i) sum += shared[first + i];
  return sum;
}

template <class Y, int kPacks, int kRowWarps>
__global__ void __launch_bounds__(kThreads) layer_norm_kernel(Y* y, int64_t y_stride, const float* x, int64_t x_stride,
                                                              int64_t n_rows, int n_packs, const float* weights,
                                                              const float* biases, float eps) {
  constexpr int kRowThreads = 32 * kRowWarps;
  __shared__ float shared[kWarps];
  start_dependent();
  const int64_t wanted = int64_t{blockIdx.x} * (kThreads / kRowThreads) + threadIdx.x / kRowThreads,
                row = min(wanted, n_rows - 1);  // all threads meet at barriers
  const int place = threadIdx.x % kRowThreads;
  const auto* from = reinterpret_cast<const float4*>(x + row * x_stride);
  const auto *weight = reinterpret_cast<const float4*>(weights), *bias = reinterpret_cast<const float4*>(biases);
  float4 kept[kPacks];
  float sum = 0, squares = 0;
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int i = place + kRowThreads * j;
    kept[j] = i < n_packs ? from[i] : float4{};
    sum += kept[j].x + kept[j].y + kept[j].z + kept[j].w;
  }
  const float dim = static_cast<float>(4 * n_packs), mean = row_sum<kRowWarps>(sum, shared) / dim;
#pragma unroll
  for (int j = 0; j < kPacks; ++j)
    if (place + kRowThreads * j < n_packs) {
      kept[j] = {kept[j].x - mean, kept[j].y - mean, kept[j].z - mean, kept[j].w - mean};
      squares += kept[j].x * kept[j].x + kept[j].y * kept[j].y + kept[j].z * kept[j].z + kept[j].w * kept[j].w;
    }
  const float inverse = 1.0f / sqrtf(row_sum<kRowWarps>(squares, shared) / dim + eps);
  if (wanted >= n_rows) return;
#pragma unroll
  for (int j = 0; j < kPacks; ++j)
    if (const int i = place + kRowThreads * j; i < n_packs) {
      const float4 v = kept[j], w = weight[i], b = bias != nullptr ? bias[i] : float4{};
      store4(y + row * y_stride + 4 * i,
             make_float4(v.x * inverse * w.x + b.x, v.y * inverse * w.y + b.y, v.z * inverse * w.z + b.z,
                         v.w * inverse * w.w + b.w));
    }
}

}  // namespace

bool can_layer_norm(const Tensor& y, const Tensor& x, const NormArgs& a) {
  return a.kind == NormKind::kLayer && a.weight && x.dtype == DType::kF32 && x.cols % 4 == 0 &&
         x.cols <= 4 * 32 * kLongRowWarps * kMostPacks && x.stride % 4 == 0 && y.stride % 4 == 0 &&
         on_16_bytes(x.data) && on_16_bytes(y.data) && on_16_bytes(a.weight.data) &&
         (!a.bias || on_16_bytes(a.bias.data));
}

void layer_norm_rows(const Tensor& y, const Tensor& x, const NormArgs& a, Device& device) {
  const int n_packs = static_cast<int>(x.cols / 4);
  with_type(y.dtype, [&](auto* py) {
    using Y = std::remove_pointer_t<decltype(py)>;
    const auto run = [&](auto kernel, int row_warps) {
      launch(device, kernel, dim3(blocks_for(x.rows, kWarps / row_warps)), kThreads, 0, static_cast<Y*>(y.data),
             y.stride, x.f32(), x.stride, x.rows, n_packs, a.weight.f32(), a.bias ? a.bias.f32() : nullptr, a.eps);
    };
    n_packs <= 32 * 4            ? run(layer_norm_kernel<Y, 4, 1>, 1)
    : n_packs <= 32 * 8          ? run(layer_norm_kernel<Y, 8, 1>, 1)
    : n_packs <= 32 * kMostPacks ? run(layer_norm_kernel<Y, kMostPacks, 1>, 1)
    : n_packs <= 128 * 8         ? run(layer_norm_kernel<Y, 8, kLongRowWarps>, kLongRowWarps)
                                 : run(layer_norm_kernel<Y, kMostPacks, kLongRowWarps>, kLongRowWarps);
  });
}

}  // namespace ingot::cuda
