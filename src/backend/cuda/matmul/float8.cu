// Packs weights of 8-bit floats, and quantizes rows of activations to 8-bit floats. A scale maps the largest number to
// 448, the largest E4M3. NaN stays NaN.
#include "backend/cuda/device.cuh"
#include "backend/cuda/matmul/float8.h"
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

}  // namespace ingot::cuda
