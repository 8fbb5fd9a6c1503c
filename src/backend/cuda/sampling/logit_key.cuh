// Integer keys of logits, in the order of sampler.h: larger logits first, then lower ids. NaN loses to every other
// logit.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "backend/cuda/kernels.h"

namespace ingot::cuda {

__device__ __forceinline__ uint32_t ordered_bits(float logit) {
  const uint32_t bits = __float_as_uint(logit == 0 ? 0.0f : logit);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float logit_of(uint32_t ordered) {
  return __uint_as_float(ordered & 0x80000000u ? ordered & 0x7FFFFFFFu : ~ordered);
}

__device__ __forceinline__ Key key_of(float logit, int64_t id) {
  if (isnan(logit)) return 0;
  return static_cast<Key>(ordered_bits(logit)) << 32 | (0xFFFFFFFFu - static_cast<uint32_t>(id));
}
__device__ __forceinline__ float logit_of(Key key) { return logit_of(static_cast<uint32_t>(key >> 32)); }
__device__ __forceinline__ int32_t id_of(Key key) {
  return static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(key));
}

}  // namespace ingot::cuda
