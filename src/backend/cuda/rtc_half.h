// Specialised kernels (specialised.h) include this file as <cuda_fp16.h>. It has the few functions of cuda_fp16.h that
// they use, written in PTX. So NVRTC needs no file of the toolkit, and does not parse its ten thousand lines for each
// kernel.
#pragma once
#include <cstdint>

struct alignas(2) half {
  unsigned short bits;
};
struct alignas(4) half2 {
  half x, y;
};

__device__ __forceinline__ uint32_t rtc_bits(half2 v) { return *reinterpret_cast<uint32_t*>(&v); }
__device__ __forceinline__ half2 rtc_pair(uint32_t bits) { return *reinterpret_cast<half2*>(&bits); }

__device__ __forceinline__ float __half2float(half v) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v.bits));
  return f;
}
__device__ __forceinline__ unsigned short __half_as_ushort(half v) { return v.bits; }
__device__ __forceinline__ half __float2half_rn(float f) {
  half v;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(v.bits) : "f"(f));
  return v;
}
__device__ __forceinline__ half __int2half_rn(int i) {
  half v;
  asm("cvt.rn.f16.s32 %0, %1;" : "=h"(v.bits) : "r"(i));
  return v;
}
__device__ __forceinline__ half2 __halves2half2(half a, half b) {
  half2 v;
  v.x = a, v.y = b;
  return v;
}
__device__ __forceinline__ half2 __low2half2(half2 v) { return __halves2half2(v.x, v.x); }
__device__ __forceinline__ half2 __high2half2(half2 v) { return __halves2half2(v.y, v.y); }
__device__ __forceinline__ half2 __float2half2_rn(float f) {
  return __halves2half2(__float2half_rn(f), __float2half_rn(f));
}
__device__ __forceinline__ float __low2float(half2 v) { return __half2float(v.x); }
__device__ __forceinline__ float __high2float(half2 v) { return __half2float(v.y); }
__device__ __forceinline__ float2 __half22float2(half2 v) { return make_float2(__half2float(v.x), __half2float(v.y)); }

__device__ __forceinline__ half2 __hsub2(half2 a, half2 b) {
  uint32_t r;
  asm("sub.f16x2 %0, %1, %2;" : "=r"(r) : "r"(rtc_bits(a)), "r"(rtc_bits(b)));
  return rtc_pair(r);
}
__device__ __forceinline__ half2 __hmul2(half2 a, half2 b) {
  uint32_t r;
  asm("mul.f16x2 %0, %1, %2;" : "=r"(r) : "r"(rtc_bits(a)), "r"(rtc_bits(b)));
  return rtc_pair(r);
}
__device__ __forceinline__ half2 __hfma2(half2 a, half2 b, half2 c) {
  uint32_t r;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(rtc_bits(a)), "r"(rtc_bits(b)), "r"(rtc_bits(c)));
  return rtc_pair(r);
}
