// Products of integers on the tensor core, for few rows of activations: codes are bytes, and activations are integers
// of 16 bits with a scale for each step of 128 columns. The tensor core multiplies their high and their low bytes.
#pragma once
#include "backend/cuda/matmul/matvec_step.cuh"

namespace ingot::cuda::code_bytes {

// The largest integer of an activation. Adding kRounder rounds a float to an integer, which its low bits then are.
inline constexpr float kLargest = 127 * 256, kRounder = 0x1.8p23f;

// The order of a lane's 8 codes as bytes of two words. The digits of a word are its codes; a mask has codes 0 to 3. A
// mask of nibbles selects every other code (packed_weight.h).
struct ByteOrder {
  uint32_t first, second, first_mask, second_mask;
};
INGOT_HD constexpr ByteOrder byte_order(Layout layout) {
  return layout == Layout::kCodes4      ? ByteOrder{0x5140, 0x7362, 0x00FF00FF, 0x00FF00FF}
         : layout == Layout::kCodesE2M1 ? ByteOrder{0x6420, 0x7531, 0x0000FFFF, 0x0000FFFF}
                                        : ByteOrder{0x3210, 0x7654, 0xFFFFFFFF, 0};
}

// Rounds 4 columns times `inverse` to integers of 16 bits. Returns byte 0 or 1 of each, which the selector `which` of
// __byte_perm chooses. The low bits of a float near 2^23 are its integer part, so adding `rounder` rounds.
__device__ __forceinline__ uint32_t rounded_bytes(const float4& v, float inverse, float rounder, uint32_t which) {
  const auto bits = [&](float column) { return __float_as_uint(fmaf(column, inverse, rounder)); };
  return __byte_perm(__byte_perm(bits(v.x), bits(v.y), which), __byte_perm(bits(v.z), bits(v.w), which), 0x5410);
}

// A lane's 8 columns as integers of 16 bits: their high bytes, or their low bytes.
struct LaneBytes {
  uint32_t first, second;  // of columns 0 to 3, and of 4 to 7
  uint2 ordered;           // in the order of the layout's codes
};
INGOT_HD constexpr bool has_low_bytes(int lane) { return (lane & 4) != 0; }  // of the columns of lane - 4

template <Layout kLayout>
__device__ __forceinline__ LaneBytes bytes_of_columns(const float4 (&v)[2], float inverse, int lane) {
  constexpr ByteOrder kOrder = byte_order(kLayout);
  // An integer is 256 * high + low, where low is signed too. So high is byte 1 of the integer plus 128.
  const float rounder = has_low_bytes(lane) ? kRounder : kRounder + 128;
  const uint32_t which = has_low_bytes(lane) ? 0x0040 : 0x0051;
  const uint32_t first = rounded_bytes(v[0], inverse, rounder, which),
                 second = rounded_bytes(v[1], inverse, rounder, which);
  return {first, second,
          make_uint2(__byte_perm(first, second, kOrder.first), __byte_perm(first, second, kOrder.second))};
}
// What columns of at most this size are multiplied by.
__device__ __forceinline__ float inverse_of(float amax) { return amax > 0 ? __fdividef(kLargest, amax) : 0.0f; }

// The sums of the halves of a unit, in the first of its lanes: four lanes have high bytes, four have low bytes. In a
// lane, the sums of both halves share a register, because each has less than 15 bits.
template <bool kGroup16>
__device__ __forceinline__ int2 totals_of(uint32_t first, uint32_t second) {
  const auto sum = [](uint32_t bytes, int more) { return __dp4a(static_cast<int>(bytes), 0x01010101, more); };
  int own = kGroup16 ? sum(first, 0) + (sum(second, 0) << 16) : sum(first, sum(second, 0));
#pragma unroll
  for (int i = 1; i <= 2; i *= 2) own += __shfl_xor_sync(0xFFFFFFFFu, own, i);
  const int other = __shfl_xor_sync(0xFFFFFFFFu, own, 4);
  if constexpr (!kGroup16) return {256 * own + other, 0};
  const int own_first = static_cast<int16_t>(own), other_first = static_cast<int16_t>(other);
  return {256 * own_first + other_first, 256 * ((own - own_first) >> 16) + ((other - other_first) >> 16)};
}

// Twice the E2M1 numbers of 8 codes, as signed bytes.
__device__ __forceinline__ uint2 bytes_of_e2m1(uint32_t word) {
  const uint32_t size = word & 0x77777777u, which = (word >> 1 & 0x44444444u) | 0x32103210u;
  const auto four = [&](int shift) {  // each nibble looks up both signs, and chooses one
    const uint32_t plus = __byte_perm(0x03020100u, 0x0C080604u, size >> shift),
                   minus = __byte_perm(0xFDFEFF00u, 0xF4F8FAFCu, size >> shift);
    return __byte_perm(plus, minus, which >> shift);
  };
  return {four(0), four(16)};
}

// The codes of a unit as bytes, in their byte_order().
template <class K>
__device__ __forceinline__ uint2 bytes_of(const uint4* pieces /* of the lane's row */, int u, const uint32_t* table) {
  if constexpr (K::kLayout == Layout::kCodes8) {
    const uint4& v = pieces[u / 2];
    return u % 2 ? make_uint2(v.z, v.w) : make_uint2(v.x, v.y);
  } else {
    const uint32_t word = word_of(pieces[0], u);
    if constexpr (K::kLayout == Layout::kCodesE2M1) return bytes_of_e2m1(word);
    if constexpr (K::kLayout == Layout::kCodes4) return {word & 0x0F0F0F0Fu, word >> 4 & 0x0F0F0F0Fu};
    const auto pair = [&](int i) { return table[word >> (8 * i) & 255]; };
    return {pair(0) | pair(1) << 16, pair(2) | pair(3) << 16};
  }
}

}  // namespace ingot::cuda::code_bytes
