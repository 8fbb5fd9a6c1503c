// What tile_matmul.cu and expert_tiles.cu share: from codes in a slot of shared memory (matvec_step.cuh) to the tensor core's operands in
// registers, exact whole numbers times the scale.
#pragma once
#include "backend/cuda/device.cuh"
#include "backend/cuda/matvec_step.cuh"

namespace ingot::cuda::tile_step {

// Of a row of a tile, the scales of units 2 * half and 2 * half + 1.
template <class K>
struct HalfScales {
  static constexpr int kFields = K::kMin ? 2 : 1, kPerUnit = K::kGroup16 ? 2 : 1, kWords = kFields * kPerUnit;
  uint32_t words[kWords];

  __device__ __forceinline__ HalfScales(const char* slot, int row, int half) {
    const char* p = slot + 512 * K::kPieces + (2 * row + half) * (4 * kWords);
    if constexpr (kWords == 1) {
      words[0] = *reinterpret_cast<const uint32_t*>(p);
    } else if constexpr (kWords == 2) {
      const uint2 v = *reinterpret_cast<const uint2*>(p);
      words[0] = v.x, words[1] = v.y;
    } else {
      const uint4 v = *reinterpret_cast<const uint4*>(p);
      words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
    }
  }
  // Of group h of unit u of the half. To be called with constants.
  __device__ __forceinline__ half2 get(int u, int h, bool min) const {
    const int i = (u * kPerUnit + h) * kFields + min;
    const half2 pair = half2_of(words[i / 2]);
    return i % 2 ? __high2half2(pair) : __low2half2(pair);
  }
};

// Whole numbers: codes less their zero, or entries of the codebook. `offset` is the pair of 1024 + zero.
template <class K>
__device__ __forceinline__ half2 level_pair(const uint32_t (&words)[2], int j, half2 offset, const uint32_t* table) {
  if constexpr (K::kLayout == Layout::kCodebook4) return half2_of(table[words[0] >> (8 * j) & 255]);
  // A code in the low bits of the f16 1024 is 1024 + code.
  const uint32_t bits = K::kLayout == Layout::kCodes4 ? (words[0] >> (4 * j) & 0x000F000Fu) | 0x64006400u
                                                      : __byte_perm(words[j / 2], 0x64646464u, j % 2 ? 0x4342 : 0x4140);
  return __hsub2(half2_of(bits), offset);
}

// The lane's 8 weights of rows g and g + 8 of a tile, of one unit of a step. To be called with constant units.
template <class K>
__device__ __forceinline__ void weights_of(uint32_t (&a)[2][4], const char* slot, int unit, int lane, half2 offset,
                                           const uint32_t* table) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    uint32_t words[2];
    if constexpr (K::kPieces == 4) {
      const uint4 v = reinterpret_cast<const uint4*>(slot)[64 * (unit / 2) + 32 * r + lane];
      words[0] = unit % 2 ? v.z : v.x, words[1] = unit % 2 ? v.w : v.y;
    } else {
      const uint2 v = reinterpret_cast<const uint2*>(slot)[2 * (32 * r + lane) + unit / 2];
      words[0] = unit % 2 ? v.y : v.x;
    }
    const HalfScales<K> scales(slot, lane / 4 + 8 * r, unit / 2);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int h = K::kGroup16 ? j / 2 : 0;
      const half2 level = level_pair<K>(words, j, offset, table), scale = scales.get(unit % 2, h, false);
      a[r][j] = bits_of(K::kMin ? __hfma2(level, scale, scales.get(unit % 2, h, true)) : __hmul2(level, scale));
    }
  }
}

// Pairs of codebook entries as halves.
__device__ __forceinline__ void fill_levels(uint32_t* table, const PackedWeight& w) {
  const int i = threadIdx.x;
  if (i >= 256) return;
  const auto level = [&](int code) { return __int2half_rn(quant::codebook_entry(w.codebook_low, w.codebook_high, code)); };
  table[i] = bits_of(__halves2half2(level(i & 15), level(i >> 4)));
}

}  // namespace ingot::cuda::tile_step
