// Numbers on their way to another GPU. 8 neighbours of a row are 16 bytes: each has a sign and 14 bits of a common
// unit, a power of two. The error is at most 2^-14 of the largest neighbour.
#pragma once
#include "backend/cuda/launch.cuh"
#include "backend/cuda/ranks/peer_sums.h"

namespace ingot::cuda {

struct Numbers {
  float v[kPeerGroup];
};

__device__ __forceinline__ Numbers load_numbers(const float* from) {
  const float4 a = reinterpret_cast<const float4*>(from)[0], b = reinterpret_cast<const float4*>(from)[1];
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
__device__ __forceinline__ void store_numbers(float* to, const Numbers& n) {
  const auto& v = n.v;
  reinterpret_cast<float4*>(to)[0] = make_float4(v[0], v[1], v[2], v[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(v[4], v[5], v[6], v[7]);
}
__device__ __forceinline__ void add(Numbers& to, const Numbers& n) {
#pragma unroll
  for (int i = 0; i < kPeerGroup; ++i) to.v[i] += n.v[i];
}

// The exponent's 8 bits lie in the lowest bits of the 8 integers. The exponent is at least kLeastExponent, so that the
// unit and its inverse are normal floats. If a number is infinite or not a number, all 8 become NaN.
constexpr uint32_t kLeastExponent = 16, kNotFinite = 255;

__device__ __forceinline__ uint4 encode(const Numbers& n) {
  uint32_t largest = 0;
#pragma unroll
  for (const float v : n.v) largest = max(largest, __float_as_uint(v) & 0x7FFFFFFF);
  const uint32_t exponent = max(largest >> 23, kLeastExponent);
  const float per_unit = __uint_as_float((267 - exponent) << 23);  // 2^14 / 2^(exponent - 126), which all are below
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    int q[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) q[j] = max(-16383, min(16383, __float2int_rn(n.v[2 * i + j] * per_unit)));
    const uint32_t pair = (static_cast<uint32_t>(q[0]) << 1 & 0xFFFF) | static_cast<uint32_t>(q[1]) << 17;
    words[i] = pair | ((exponent | exponent << 12) >> i & 0x10001);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ Numbers decode(const uint4& code) {
  const uint32_t words[4] = {code.x, code.y, code.z, code.w};
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) bits |= (words[i] & 0x10001) << i;
  const uint32_t exponent = (bits | bits >> 12) & 0xFF;
  const float unit = __uint_as_float(exponent == kNotFinite ? 0x7FC00000 : (exponent - 13) << 23);
  Numbers n;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    n.v[2 * i] = static_cast<float>(static_cast<int>(words[i] << 16) >> 17) * unit;
    n.v[2 * i + 1] = static_cast<float>(static_cast<int>(words[i]) >> 17) * unit;
  }
  return n;
}

}  // namespace ingot::cuda
