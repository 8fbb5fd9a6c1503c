// Elements of the KV cache: their types, the row of a token's head, and loads as halves. Scaled types store integers,
// with an f16 scale for each 32 elements of a row. The scales follow all rows: [n_rows, groups].
#pragma once
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace ingot::cuda {

// q8_0: an integer from -127 to 127, plus 128.
struct CachedByte {
  uint8_t bits;
};
// q4_0: two integers from -8 to 7, plus 8. Of 8 elements in a word, element 2j is at bit 4j and element 2j + 1 at bit
// 16 + 4j.
struct CachedNibbles {
  uint8_t bits;
};

template <class K>
inline constexpr bool kIsScaled = std::is_same_v<K, CachedByte> || std::is_same_v<K, CachedNibbles>;
template <class K>
inline constexpr int kBits = std::is_same_v<K, CachedNibbles> ? 4 : 8 * static_cast<int>(sizeof(K));
inline constexpr int kScaleGroup = 32;  // elements that share a scale
__device__ __host__ constexpr int scale_groups(int dim) { return (dim + kScaleGroup - 1) / kScaleGroup; }

// Calls f with a null pointer to the element type of a cache of small floats.
template <class F>
void with_small_float(DType dtype, F&& f) {
  if (dtype == DType::kBF16) return f(static_cast<__nv_bfloat16*>(nullptr));
  if (dtype == DType::kE4M3) return f(static_cast<__nv_fp8_e4m3*>(nullptr));
  CHECK(dtype == DType::kF16);
  f(static_cast<half*>(nullptr));
}
// Call f with null pointers to the element types of keys and of values. The first accepts all types that attention
// reads as halves, the second all types. Two types are q8_0 and q4_0.
template <class F>
void with_cached_half(const DeviceKv& kv, F&& f) {
  auto* const bytes = static_cast<CachedByte*>(nullptr);
  auto* const nibbles = static_cast<CachedNibbles*>(nullptr);
  if (kv.has_two_types()) {
    CHECK(kv.dtype == DType::kQ8_0 && kv.values.dtype == DType::kQ4_0);
    return f(bytes, nibbles);
  }
  if (kv.dtype == DType::kQ8_0) return f(bytes, bytes);
  if (kv.dtype == DType::kQ4_0) return f(nibbles, nibbles);
  with_small_float(kv.dtype, [&](auto* both) { f(both, both); });
}
template <class F>
void with_cached(const DeviceKv& kv, F&& f) {
  if (kv.dtype == DType::kF32) return f(static_cast<float*>(nullptr), static_cast<float*>(nullptr));
  with_cached_half(kv, f);
}

// The array of keys (which = 0) or values (1), of elements K and V.
template <class K, class V>
__device__ __forceinline__ KvRows rows_of(const DeviceKv& kv, int which) {
  if (std::is_same_v<K, V> || which == 0) return {kv.data, kv.dtype, kv.scales};
  return kv.values;
}
// The row of a token's key (which = 0) or value (1) of one head in a block of the cache.
__device__ __forceinline__ int64_t cached_row(const DeviceKv& kv, int layer, int64_t block, int position, int which,
                                              int head) {
  const int64_t part = (layer * int64_t{kv.n_blocks} + block) * kv.n_parts + which * (kv.n_parts - 1);
  const int64_t page = part * kv.n_kv_heads + head;
  return page * kv.block_size + position % kv.block_size;
}
// The address of elements of a row of `dim`. With nibbles, column is a multiple of 4.
template <class K>
__device__ __forceinline__ K* cached_at(const KvRows& rows, int64_t row, int dim, int column = 0) {
  return reinterpret_cast<K*>(static_cast<char*>(rows.data) + (row * dim + column) * kBits<K> / 8);
}
__device__ __forceinline__ half* cached_scales(const KvRows& rows, int64_t row, int dim) {
  return static_cast<half*>(rows.scales) + row * scale_groups(dim);
}

// Load 8 or 4 neighbouring elements as pairs of halves. Scaled types: the integers.
__device__ __forceinline__ uint4 load8(const half* p) { return *reinterpret_cast<const uint4*>(p); }
__device__ __forceinline__ uint2 load4(const half* p) { return *reinterpret_cast<const uint2*>(p); }
__device__ __forceinline__ uint2 load4(const __nv_bfloat16* p) {
  const auto* pairs = reinterpret_cast<const __nv_bfloat162*>(p);
  return make_uint2(halves_of(pairs[0]), halves_of(pairs[1]));
}
__device__ __forceinline__ uint4 load8(const __nv_bfloat16* p) {
  const uint4 raw = *reinterpret_cast<const uint4*>(p);
  const auto* pairs = reinterpret_cast<const __nv_bfloat162*>(&raw);
  return make_uint4(halves_of(pairs[0]), halves_of(pairs[1]), halves_of(pairs[2]), halves_of(pairs[3]));
}
// As halves_of_float8(), but NaN stays NaN before Ada too.
__device__ __forceinline__ uint2 halves_of_four(uint32_t v) {
  if constexpr (kArch >= 890) {
    return halves_of_float8(v);
  } else {
    return make_uint2(halves_of(static_cast<__nv_fp8x2_storage_t>(v)),
                      halves_of(static_cast<__nv_fp8x2_storage_t>(v >> 16)));
  }
}
__device__ __forceinline__ uint2 load4(const __nv_fp8_e4m3* p) {
  return halves_of_four(*reinterpret_cast<const uint32_t*>(p));
}
__device__ __forceinline__ uint4 load8(const __nv_fp8_e4m3* p) {
  const uint2 raw = *reinterpret_cast<const uint2*>(p), low = halves_of_four(raw.x), high = halves_of_four(raw.y);
  return make_uint4(low.x, low.y, high.x, high.y);
}
// The half 1024 + n, for n from 0 to 1023, has n in its low bits.
__device__ __forceinline__ uint32_t less(uint32_t pair, uint32_t offset) {
  return bits_of(__hsub2(half2_of(pair), half2_of(offset)));
}
__device__ __forceinline__ uint2 halves_of_bytes(uint32_t v) {
  constexpr uint32_t kOffset = 0x64806480;  // 1024 + 128
  return make_uint2(less(__byte_perm(v, 0x64646464, 0x4140), kOffset),
                    less(__byte_perm(v, 0x64646464, 0x4342), kOffset));
}
__device__ __forceinline__ uint2 load4(const CachedByte* p) {
  return halves_of_bytes(*reinterpret_cast<const uint32_t*>(p));
}
__device__ __forceinline__ uint4 load8(const CachedByte* p) {
  const uint2 raw = *reinterpret_cast<const uint2*>(p), low = halves_of_bytes(raw.x), high = halves_of_bytes(raw.y);
  return make_uint4(low.x, low.y, high.x, high.y);
}
__device__ __forceinline__ uint32_t halves_of_nibbles(uint32_t v) {
  return less((v & 0x000F000F) | 0x64006400, 0x64086408);  // 1024 + 8
}
__device__ __forceinline__ uint4 load8(const CachedNibbles* p) {
  const uint32_t v = *reinterpret_cast<const uint32_t*>(p);
  return make_uint4(halves_of_nibbles(v), halves_of_nibbles(v >> 4), halves_of_nibbles(v >> 8),
                    halves_of_nibbles(v >> 12));
}
__device__ __forceinline__ uint2 load4(const CachedNibbles* p) {
  const auto at = reinterpret_cast<uintptr_t>(p);
  const uint32_t v = *reinterpret_cast<const uint32_t*>(at & ~uintptr_t{3}) >> (at & 2) * 4;
  return make_uint2(halves_of_nibbles(v), halves_of_nibbles(v >> 4));
}

__device__ __forceinline__ uint32_t times(uint32_t pair, half2 scale) {
  return bits_of(__hmul2(half2_of(pair), scale));
}
__device__ __forceinline__ uint4 times(const uint4& v, half scale) {
  const half2 s = __half2half2(scale);
  return make_uint4(times(v.x, s), times(v.y, s), times(v.z, s), times(v.w, s));
}
__device__ __forceinline__ uint2 times(const uint2& v, half scale) {
  const half2 s = __half2half2(scale);
  return make_uint2(times(v.x, s), times(v.y, s));
}

// Returns one element. Slow.
template <class K>
__device__ __forceinline__ float cached_element(const KvRows& rows, int64_t row, int dim, int column) {
  if constexpr (kIsScaled<K>) {
    const uint2 four = load4(cached_at<K>(rows, row, dim, column & ~3));
    const float2 pair = __half22float2(half2_of(column & 2 ? four.y : four.x));
    return (column & 1 ? pair.y : pair.x) * __half2float(cached_scales(rows, row, dim)[column / kScaleGroup]);
  } else {
    return to_float(*cached_at<K>(rows, row, dim, column));
  }
}

// The integers of 8 elements, and their group's scale. The 4 lanes of a group call this together.
struct Scaled8 {
  uint32_t low, high;  // of nibbles, only low
  float scale;
};
template <class K>
__device__ __forceinline__ Scaled8 scaled_of(const float (&x)[8]);

template <>
__device__ __forceinline__ Scaled8 scaled_of<CachedByte>(const float (&x)[8]) {
  float amax = 0, nan = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) amax = fmaxf(amax, fabsf(x[i])), nan += x[i] * 0.0f;
#pragma unroll
  for (int i = 1; i < 4; i *= 2)
    amax = fmaxf(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, i)), nan += __shfl_xor_sync(0xFFFFFFFFu, nan, i);
  const float inverse = amax > 0 ? 127.0f / amax : 0.0f;
  Scaled8 s{0, 0, amax / 127.0f + nan};  // a NaN or Inf makes the scale NaN, so that the error spreads
  const auto code = [&](float v) {  // rounds like ref
    const float product = __uint_as_float(__float_as_uint(v * inverse) & ~1u);
    return static_cast<uint32_t>(__float2int_rn(product) + 128) & 255;
  };
#pragma unroll
  for (int i = 0; i < 4; ++i) s.low |= code(x[i]) << 8 * i, s.high |= code(x[4 + i]) << 8 * i;
  return s;
}

// As in ggml, the element of largest magnitude (the first of equal ones) becomes -8.
template <>
__device__ __forceinline__ Scaled8 scaled_of<CachedNibbles>(const float (&x)[8]) {
  float extreme = 0, nan = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) extreme = fabsf(x[i]) > fabsf(extreme) ? x[i] : extreme, nan += x[i] * 0.0f;
#pragma unroll
  for (int i = 1; i < 4; i *= 2) {
    const float other = __shfl_xor_sync(0xFFFFFFFFu, extreme, i);
    const bool other_first = (threadIdx.x & i) != 0;
    extreme = fabsf(other) > fabsf(extreme) || (other_first && fabsf(other) == fabsf(extreme)) ? other : extreme;
    nan += __shfl_xor_sync(0xFFFFFFFFu, nan, i);
  }
  const float scale = extreme / -8.0f, inverse = extreme != 0 ? 1.0f / scale : 0.0f;
  Scaled8 s{0, 0, scale + nan};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t code = min(15, max(0, static_cast<int>(__fadd_rn(__fmul_rn(x[i], inverse), 8.5f))));
    s.low |= code << (i % 2 * 16 + i / 2 * 4);
  }
  return s;
}

// A warp writes a row of a scaled type. value(column) is called only for column < dim, a multiple of 8.
template <class K, class F>
__device__ __forceinline__ void store_scaled(const KvRows& rows, int64_t row, int dim, int lane, F&& value) {
  for (int first = 0; first < dim; first += 8 * 32) {
    const int column = first + 8 * lane;
    const bool in = column < dim;
    float x[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = in ? value(column + i) : 0.0f;
    const Scaled8 s = scaled_of<K>(x);
    if (!in) continue;
    K* to = cached_at<K>(rows, row, dim, column);
    if constexpr (kBits<K> == 8) {
      *reinterpret_cast<uint2*>(to) = make_uint2(s.low, s.high);
    } else {
      *reinterpret_cast<uint32_t*>(to) = s.low;
    }
    if (lane % 4 == 0) cached_scales(rows, row, dim)[column / kScaleGroup] = __float2half_rn(s.scale);
  }
}

}  // namespace ingot::cuda
