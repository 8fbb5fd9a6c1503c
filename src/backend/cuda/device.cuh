// What the kernels share: elements of either activation type, reductions, the tensor core's 16 x 8 x 16 product.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "backend/tensor.h"

namespace ingot::cuda {

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(half v) { return __half2float(v); }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }

template <class T>
__device__ __forceinline__ T from_float(float v);
template <>
__device__ __forceinline__ float from_float<float>(float v) { return v; }
// Saturates: an activation past f16's range stays finite. NaN stays NaN.
template <>
__device__ __forceinline__ half from_float<half>(float v) {
  return __float2half_rn(v > 65504.0f ? 65504.0f : v < -65504.0f ? -65504.0f : v);
}

template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float v) { return __float2bfloat16_rn(v); }

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, i);
  return v;
}

// The sum over a block of whole warps, in every thread. `shared` holds 33 floats.
__device__ __forceinline__ float block_sum(float v, float* shared) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
  v = warp_sum(v);
  if (lane == 0) shared[warp] = v;
  __syncthreads();
  if (warp == 0) {
    v = warp_sum(lane < n_warps ? shared[lane] : 0.0f);
    if (lane == 0) shared[32] = v;
  }
  __syncthreads();
  v = shared[32];
  __syncthreads();
  return v;
}

__device__ __forceinline__ float activate(float x, int act) {  // in the order of Activation
  if (act == 0) return x / (1.0f + __expf(-x));
  if (act == 2) return 0.5f * x * (1.0f + erff(x * 0.70710678f));
  return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}

// c [16 x 8] += a [16 x 16] b [16 x 8]. With g = lane / 4 and t = lane % 4: a = rows {g, g + 8, g, g + 8}, columns 2t and 2t + 1,
// 8 further in a[2], a[3]; b = column g, rows 2t, 2t + 1, and 8 further; c = row g columns 2t, 2t + 1, then row g + 8.
__device__ __forceinline__ void mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint32_t bits_of(half2 v) { return *reinterpret_cast<uint32_t*>(&v); }

// 16 bytes that are read once.
__device__ __forceinline__ uint4 load_stream(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}

// Calls f with a null pointer of the element type: of activations, or of a KV cache.
template <class F>
void with_type(DType dtype, F&& f) {
  if (dtype == DType::kF16) return f(static_cast<half*>(nullptr));
  CHECK(dtype == DType::kF32);
  f(static_cast<float*>(nullptr));
}

template <class F>
void with_kv_type(DType dtype, F&& f) {
  if (dtype == DType::kBF16) return f(static_cast<__nv_bfloat16*>(nullptr));
  with_type(dtype, f);
}

inline unsigned blocks_for(int64_t n, int block) { return static_cast<unsigned>((n + block - 1) / block); }

}  // namespace ingot::cuda
