// Packs weights of 8-bit floats, and quantizes rows of activations to 8-bit floats. A scale maps the largest number to
// 448, the largest E4M3. NaN stays NaN.
#include "backend/cuda/launch.cuh"
#include "backend/cuda/matmul/float8.h"
#include "backend/cuda/rms.cuh"
#include "quant/f8_e4m3.h"

namespace ingot::cuda {
namespace {

constexpr int kWarps = 8;
constexpr float kLargest = 448;
constexpr int kBlockBytes = quant::F8_E4M3::block_bytes;
static_assert(quant::F8_E4M3::block_size == kScaleCols && kBlockBytes % 4 == 0);

// One warp for each block: its scale, then 32 words of numbers.
__global__ void pack_kernel(const uint8_t* blocks, const __grid_constant__ PackedWeight w, uint32_t* not_shared) {
  const int64_t per_row = w.n_in / kScaleCols, i = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (i >= w.n_out * per_row) return;
  const int64_t row = i / per_row, k = i % per_row;
  const auto word = [&](int64_t block, int at) {
    return reinterpret_cast<const uint32_t*>(blocks + block * kBlockBytes)[at];
  };
  static_cast<uint32_t*>(const_cast<void*>(w.data))[i * 32 + lane] = word(i, 1 + lane);
  if (lane != 0) return;
  const uint32_t scale = word(i, 0);
  auto* scales = static_cast<uint32_t*>(const_cast<void*>(w.scales));
  scales[k * column_scales(w.n_out) + row] = scale;
  if (row % kScaleCols == 0) scales[blocks_at(w.n_out, w.n_in) + row / kScaleCols * block_scales(w.n_in) + k] = scale;
  const uint32_t differs = (scale != word(i - k, 0) ? kRowsDiffer : 0) |
                           (scale != word(i - row % kScaleCols * per_row, 0) ? kBlocksDiffer : 0);
  if (differs != 0) atomicOr(not_shared, differs);
}

__device__ __forceinline__ float largest_of(uint2 v) {
  const float2 a = __half22float2(half2_of(v.x)), b = __half22float2(half2_of(v.y));
  return fmaxf(fmaxf(fabsf(a.x), fabsf(a.y)), fmaxf(fabsf(b.x), fabsf(b.y)));
}
__device__ __forceinline__ uint32_t float8_of(uint2 v, float factor) {
  const float2 a = __half22float2(half2_of(v.x)), b = __half22float2(half2_of(v.y));
  const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(a.x * factor, a.y * factor), __NV_SATFINITE, __NV_E4M3);
  const uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(b.x * factor, b.y * factor), __NV_SATFINITE, __NV_E4M3);
  return low | high << 16;
}
// For rows of zeros, the factor is 0 and the scale is 1.
__device__ __forceinline__ float factor_of(float largest) { return largest > 0 ? kLargest / largest : 0.0f; }
__device__ __forceinline__ float scale_of(float largest) { return largest > 0 ? largest / kLargest : 1.0f; }
__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) v = fmaxf(v, __shfl_xor_sync(0xFFFFFFFFu, v, i));
  return v;
}

// A scale for each 128 columns: one warp for each scale, 4 columns per lane.
__global__ void quantize_columns_kernel(uint32_t* to, float* scales, const half* x, int64_t stride, int n_in) {
  start_dependent();
  const int k = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (k * kScaleCols >= n_in) return;
  const int64_t row = blockIdx.x;
  const uint2 v = reinterpret_cast<const uint2*>(x + row * stride)[k * 32 + lane];
  const float largest = warp_max(largest_of(v));
  to[row * (n_in / 4) + k * 32 + lane] = float8_of(v, factor_of(largest));
  if (lane == 0) scales[int64_t{k} * gridDim.x + row] = scale_of(largest);
}

// A scale for each row: one block for each row.
__global__ void quantize_rows_kernel(uint32_t* to, float* scales, const half* x, int64_t stride, int n_in) {
  __shared__ float shared[kWarps];
  start_dependent();
  const int64_t row = blockIdx.x;
  const auto* from = reinterpret_cast<const uint2*>(x + row * stride);
  float largest = 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < n_in / 4; i += kWarps * 32) largest = fmaxf(largest, largest_of(from[i]));
  largest = warp_max(largest);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = largest;
  __syncthreads();
#pragma unroll
  for (const float of_warp : shared) largest = fmaxf(largest, of_warp);
  const float factor = factor_of(largest);
#pragma unroll 4
  for (int i = threadIdx.x; i < n_in / 4; i += kWarps * 32) to[row * (n_in / 4) + i] = float8_of(from[i], factor);
  if (threadIdx.x == 0) scales[row] = scale_of(largest);
}

// The norm of each row by one block, and the first n rows of the result as 8-bit floats. A warp has 128 neighbouring
// columns.
template <int kPacks>
__global__ void __launch_bounds__(kPackThreads)
    norm_quantize_kernel(half* y, int64_t y_stride, uint32_t* to, float* scales, int n, bool whole_rows, const float* x,
                         int64_t x_stride, int n_packs, const float* weight, float eps) {
  __shared__ float shared[kPackThreads / 32];
  const int64_t row = blockIdx.x;
  float4 normed[kPacks];
  rms_row(normed, x + row * x_stride, n_packs, weight, eps);
  uint2 halves[kPacks];
  float largest[kPacks], of_thread = 0;
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int i = threadIdx.x + j * blockDim.x;
    halves[j] = halves_of(normed[j]);
    if (i < n_packs) *reinterpret_cast<uint2*>(y + row * y_stride + 4 * i) = halves[j];
    of_thread = fmaxf(of_thread, largest[j] = largest_of(halves[j]));
  }
  if (row >= n) return;
  if (whole_rows) {
    const float of_warp = warp_max(of_thread);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = of_warp;
    __syncthreads();
    float of_row = 0;
    for (int w = 0; w < static_cast<int>(blockDim.x / 32); ++w) of_row = fmaxf(of_row, shared[w]);
    if (threadIdx.x == 0) scales[row] = scale_of(of_row);
#pragma unroll
    for (float& v : largest) v = of_row;
  }
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int i = threadIdx.x + j * blockDim.x;
    if (!whole_rows) largest[j] = warp_max(largest[j]);
    if (i >= n_packs) continue;
    to[row * n_packs + i] = float8_of(halves[j], factor_of(largest[j]));
    if (!whole_rows && threadIdx.x % 32 == 0) scales[int64_t{i / 32} * n + row] = scale_of(largest[j]);
  }
}

}  // namespace

void pack_float8(const void* blocks, const PackedWeight& w, uint32_t* not_shared, Device& device) {
  pack_kernel<<<blocks_for(w.n_out * w.n_in / kScaleCols, kWarps), kWarps * 32, 0, device.stream()>>>(
      static_cast<const uint8_t*>(blocks), w, not_shared);
}

ScaleGrid grid_of(uint32_t not_shared) {
  return (not_shared & kRowsDiffer) == 0     ? ScaleGrid::kRows
         : (not_shared & kBlocksDiffer) == 0 ? ScaleGrid::kBlocks
                                             : ScaleGrid::kColumns;
}

Float8Rows quantize_rows(void* to, const Tensor& x, bool whole_rows, Device& device) {
  CHECK(x.dtype == DType::kF16 && x.stride % 4 == 0 && x.cols % kScaleCols == 0);
  auto* scales = reinterpret_cast<float*>(static_cast<char*>(to) + x.rows * x.cols);
  const auto n = static_cast<unsigned>(x.rows);
  const int n_in = static_cast<int>(x.cols);
  if (whole_rows) {
    launch(device, quantize_rows_kernel, dim3(n), kWarps * 32, 0, static_cast<uint32_t*>(to), scales,
           static_cast<const half*>(x.data), x.stride, n_in);
  } else {
    launch(device, quantize_columns_kernel, dim3(n, blocks_for(n_in / kScaleCols, kWarps)), kWarps * 32, 0,
           static_cast<uint32_t*>(to), scales, static_cast<const half*>(x.data), x.stride, n_in);
  }
  return {to, scales, x.rows, x.cols, whole_rows};
}

bool can_norm_quantize(const Tensor& y, const Tensor& x, const NormArgs& norm) {
  return y.dtype == DType::kF16 && x.cols % kScaleCols == 0 && can_rms(y, x, norm);
}

Float8Rows norm_quantize(void* to, const Tensor& y, const Tensor& x, const NormArgs& norm, int64_t n, bool whole_rows,
                         Device& device) {
  auto* scales = reinterpret_cast<float*>(static_cast<char*>(to) + n * x.cols);
  const int n_packs = static_cast<int>(x.cols / 4);
  with_packs(n_packs, [&](auto packs, int threads) {
    launch(device, norm_quantize_kernel<decltype(packs)::value>, dim3(static_cast<unsigned>(x.rows)), threads, 0,
           static_cast<half*>(y.data), y.stride, static_cast<uint32_t*>(to), scales, static_cast<int>(n), whole_rows,
           x.f32(), x.stride, n_packs, norm.weight.f32(), norm.eps);
  });
  return {to, scales, n, x.cols, whole_rows};
}

}  // namespace ingot::cuda
