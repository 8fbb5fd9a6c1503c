// The RMS norm of one f32 row by one block, in registers: rows with a multiple of 4 elements, aligned to 16 bytes. A
// thread has the packs of 4 elements threadIdx.x + j * blockDim.x.
#pragma once
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace ingot::cuda {

constexpr int kPackThreads = 512;
constexpr int kMaxPacks = 4;

inline bool on_16_bytes(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

inline bool can_rms(const Tensor& y, const Tensor& x, const NormArgs& a) {
  return a.kind == NormKind::kRms && a.weight && !a.bias && x.dtype == DType::kF32 && x.cols % 4 == 0 &&
         x.cols <= 4 * kPackThreads * kMaxPacks && x.stride % 4 == 0 && y.stride % 4 == 0 && on_16_bytes(x.data) &&
         on_16_bytes(y.data) && on_16_bytes(a.weight.data);
}

// Calls start(integral_constant<packs of a thread>, threads of a block) for rows of n_packs packs.
template <class F>
void with_packs(int n_packs, F&& start) {
  const int threads = n_packs >= kPackThreads ? kPackThreads : (n_packs + 31) / 32 * 32;
  n_packs <= threads       ? start(std::integral_constant<int, 1>(), threads)
  : n_packs <= 2 * threads ? start(std::integral_constant<int, 2>(), threads)
                           : start(std::integral_constant<int, kMaxPacks>(), threads);
}

// row: [4 * n_packs]. Elements past the row become 0.
template <int kPacks>
__device__ __forceinline__ void load_packs(float4 (&packs)[kPacks], const float* row, int n_packs) {
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int i = threadIdx.x + j * blockDim.x;
    packs[j] = i < n_packs ? reinterpret_cast<const float4*>(row)[i] : float4{};
  }
}

// sums: [kPackThreads / 32] in shared memory.
template <int kPacks>
__device__ __forceinline__ void rms_packs(float4 (&normed)[kPacks], const float4 (&scales)[kPacks], int n_packs,
                                          float eps, float* sums) {
  float squares = 0;
#pragma unroll
  for (const float4 v : normed) squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  squares = warp_sum(squares);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = squares;
  __syncthreads();
  float total = 0;
  for (int w = 0; w < static_cast<int>(blockDim.x / 32); ++w) total += sums[w];
  const float inverse = 1.0f / sqrtf(total / static_cast<float>(4 * n_packs) + eps);
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const float4 v = normed[j], s = scales[j];
    normed[j] = {v.x * inverse * s.x, v.y * inverse * s.y, v.z * inverse * s.z, v.w * inverse * s.w};
  }
}

// row: written by the previous kernel; weight: [4 * n_packs].
template <int kPacks>
__device__ __forceinline__ void rms_row(float4 (&normed)[kPacks], const float* row, int n_packs, const float* weight,
                                        float eps) {
  __shared__ float sums[kPackThreads / 32];
  let_next_start();
  float4 scales[kPacks];
  load_packs(scales, weight, n_packs);
  wait_for_previous();
  load_packs(normed, row, n_packs);
  rms_packs(normed, scales, n_packs, eps, sums);
}

__device__ __forceinline__ void store4(float* to, float4 v) { *reinterpret_cast<float4*>(to) = v; }

__device__ __forceinline__ uint2 halves_of(float4 v) {
  const half2 low = __halves2half2(from_float<half>(v.x), from_float<half>(v.y));
  const half2 high = __halves2half2(from_float<half>(v.z), from_float<half>(v.w));
  return make_uint2(bits_of(low), bits_of(high));
}

__device__ __forceinline__ void store4(half* to, float4 v) { *reinterpret_cast<uint2*>(to) = halves_of(v); }

}  // namespace ingot::cuda
