// Functions to launch kernels, and device code for types that NVRTC does not know. Files that are embedded for NVRTC
// (cmake/cuda.cmake) include device.cuh only.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <utility>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"
#include "backend/tensor.h"

namespace ingot::cuda {

__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ __forceinline__ float to_float(__nv_fp8_e4m3 v) { return static_cast<float>(v); }
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float v) {
  return __float2bfloat16_rn(v);
}
template <>
__device__ __forceinline__ __nv_fp8_e4m3 from_float<__nv_fp8_e4m3>(float v) {
  return __nv_fp8_e4m3(v);  // values above 448 become 448
}

// Two neighbouring numbers as halves.
__device__ __forceinline__ uint32_t halves_of(__nv_bfloat162 v) {
  const float2 x = __bfloat1622float2(v);
  return bits_of(__floats2half2_rn(x.x, x.y));
}
__device__ __forceinline__ uint32_t halves_of(__nv_fp8x2_storage_t v) {
  const __half2_raw x = __nv_cvt_fp8x2_to_halfraw2(v, __NV_E4M3);
  return uint32_t{x.x} | uint32_t{x.y} << 16;
}

// Calls f with a null pointer to the element type of activations.
template <class F>
void with_type(DType dtype, F&& f) {
  if (dtype == DType::kF16) return f(static_cast<half*>(nullptr));
  CHECK(dtype == DType::kF32);
  f(static_cast<float*>(nullptr));
}

// The kernel must follow the rules for overlapping launches. cudaGetLastError() reports a failed launch. Throws if the
// driver refuses the shared memory or the cluster size.
template <class... P, class... A>
void launch_clusters(Device& device, void (*kernel)(P...), dim3 grid, dim3 cluster, int threads, size_t shared,
                     A&&... args) {
  const unsigned cluster_blocks = cluster.x * cluster.y * cluster.z;
  device.prepare(reinterpret_cast<const void*>(kernel), shared, cluster_blocks);
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {cluster.x, cluster.y, cluster.z};
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared;
  config.stream = device.stream();
  config.attrs = attributes;
  config.numAttrs = !device.chip().has_dependent_launch ? 0 : cluster_blocks > 1 ? 2 : 1;
  cudaLaunchKernelEx(&config, kernel, std::forward<A>(args)...);
}
template <class... P, class... A>
void launch(Device& device, void (*kernel)(P...), dim3 grid, int threads, size_t shared, A&&... args) {
  launch_clusters(device, kernel, grid, dim3(1, 1, 1), threads, shared, std::forward<A>(args)...);
}

// Rounds to the 8 bits of precision that a bf16 has.
__device__ __forceinline__ float2 eight_bits(float2 v) { return __bfloat1622float2(__float22bfloat162_rn(v)); }

inline RowNorm row_norm_of(const DeferredNorm* norm) {
  if (norm == nullptr) return {nullptr, nullptr, nullptr, 0};
  return {norm->x.f32(), norm->args.weight.f32(), static_cast<half*>(norm->y.data), norm->args.eps};
}

inline unsigned blocks_for(int64_t n, int block) { return static_cast<unsigned>((n + block - 1) / block); }

}  // namespace ingot::cuda
