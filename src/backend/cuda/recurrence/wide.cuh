// Neighbouring numbers that a thread reads and writes at once: kWide of them, aligned to their size.
#pragma once
#include <type_traits>

#include "backend/cuda/launch.cuh"

namespace ingot::cuda::recurrence {

template <int kWide, class T>
__device__ __forceinline__ void load_wide(float (&to)[kWide], const T* from) {
  if constexpr (kWide == 1) {
    to[0] = to_float(*from);
  } else if constexpr (kWide == 2) {
    float2 v;
    if constexpr (std::is_same_v<T, half>)
      v = __half22float2(*reinterpret_cast<const half2*>(from));
    else
      v = *reinterpret_cast<const float2*>(from);
    to[0] = v.x, to[1] = v.y;
  } else {
    static_assert(kWide == 4 && std::is_same_v<T, float>);
    const float4 v = *reinterpret_cast<const float4*>(from);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  }
}

template <int kWide, class T>
__device__ __forceinline__ void store_wide(T* to, const float (&from)[kWide]) {
  if constexpr (kWide == 1) {
    *to = from_float<T>(from[0]);
  } else if constexpr (kWide == 2) {
    if constexpr (std::is_same_v<T, half>)
      *reinterpret_cast<half2*>(to) = __halves2half2(from_float<half>(from[0]), from_float<half>(from[1]));
    else
      *reinterpret_cast<float2*>(to) = make_float2(from[0], from[1]);
  } else {
    static_assert(kWide == 4 && std::is_same_v<T, float>);
    *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
  }
}

}  // namespace ingot::cuda::recurrence
