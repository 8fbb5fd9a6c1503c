// One step of the stream of matvec.cu: a warp copies 128 columns of 16 rows of weights to a slot of its ring, and
// multiplies them from there.
//
// A sum over columns may add them in any order, so no fragment needs shuffling. Lane t of four owns the columns that
// packed_weight.h lists, and passes them to the tensor core four at a time, with the activations of the same columns.
//
// Weights are not decoded. The bits of a code, read as an f16, are the number code * 2^-24 (a subnormal, which the
// tensor core multiplies exactly). So the tensor core multiplies codes. Another product, with the constant -zero,
// subtracts the zero point. Then the scales multiply the sums of a group. Codes that are floats become halves.
#pragma once
#include "backend/cuda/device.cuh"
#include "quant/grouped.h"

namespace ingot::cuda::matvec_step {

// A step of a warp: kCols columns of 16 rows, in pieces of 16 bytes for each lane, and their scales.
template <Layout kLayoutOf, bool kMinOf, bool kGroup16Of>
struct Kind {
  static constexpr Layout kLayout = kLayoutOf;
  static constexpr bool kMin = kMinOf, kGroup16 = kGroup16Of, kZero = has_zero(kLayout),
                        kFloats = kLayout == Layout::kCodesE2M1 || kLayout == Layout::kCodesE4M3;
  static constexpr float kPerLevel = kFloats ? 1.0f : 0x1p24f;  // a level is this times the number of pairs_of()
  static constexpr int kCols = kTileCols;
  static constexpr int kPieces = has_bytes(kLayout) ? 4 : 2;
  static constexpr int kScaleBytes = 4 * (kMin ? 2 : 1) * (kGroup16 ? 2 : 1);  // bytes that a lane copies
  static constexpr int kSlotBytes = 32 * (16 * kPieces + kScaleBytes);
  static constexpr int kSlots = kPieces == 4 ? 3 : 4;
};

// Copies 16 bytes, or writes zeros.
__device__ __forceinline__ void copy16(uint32_t to, const void* from, bool in) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(in ? 16 : 0) : "memory");
}
template <int kBytes>
__device__ __forceinline__ void copy_scales(uint32_t to, const void* from) {
  if constexpr (kBytes == 16) {
    copy16(to, from, true);
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(kBytes) : "memory");
  }
}
__device__ __forceinline__ void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Addresses of a lane's share of a tile.
struct From {
  const char *codes, *scales;
};

template <class K>
__device__ __forceinline__ From from_of(const PackedWeight& w, int tile, int lane, int64_t k_tiles) {
  const char* data = static_cast<const char*>(w.data);
  const int64_t first = tile * k_tiles;
  const char* scales = static_cast<const char*>(w.scales) + first * (32 * K::kScaleBytes);
  return {data + first * (512 * K::kPieces) + 16 * lane, scales + K::kScaleBytes * lane};
}

template <class K>
__device__ __forceinline__ From from_of(const PackedWeight& w, int tile, int lane) {
  return from_of<K>(w, tile, lane, w.k_tiles);
}

template <class K>
__device__ __forceinline__ void copy_step(uint32_t slot, const From& from, int lane) {
#pragma unroll
  for (int i = 0; i < K::kPieces; ++i) copy16(slot + 16 * lane + 512 * i, from.codes + 512 * i, true);
  copy_scales<K::kScaleBytes>(slot + 512 * K::kPieces + K::kScaleBytes * lane, from.scales);
}

// The scales of a row: [4 units, kGroup16 ? 2 : 1, kMin ? 2 : 1] halves.
template <class K>
struct Scales {
  static constexpr int kWords = 2 * (K::kMin ? 2 : 1) * (K::kGroup16 ? 2 : 1), kFields = K::kMin ? 2 : 1,
                       kPerUnit = K::kGroup16 ? 2 : 1;
  uint32_t words[kWords];

  __device__ __forceinline__ Scales(const char* slot, int row) : Scales(slot + 512 * K::kPieces + row * (4 * kWords)) {}
  __device__ __forceinline__ explicit Scales(const char* p) {
    if constexpr (kWords == 2) {
      const uint2 v = *reinterpret_cast<const uint2*>(p);
      words[0] = v.x, words[1] = v.y;
    } else {
#pragma unroll
      for (int i = 0; i < kWords; i += 4) {
        const uint4 v = *reinterpret_cast<const uint4*>(p + 4 * i);
        words[i] = v.x, words[i + 1] = v.y, words[i + 2] = v.z, words[i + 3] = v.w;
      }
    }
  }
  // The scale or the minimum of group h of unit u. Must be called with constants.
  __device__ __forceinline__ float get(int u, int h, bool min) const {
    const int i = (u * kPerUnit + h) * kFields + min;
    const half2 pair = half2_of(words[i / 2]);
    return i % 2 ? __high2float(pair) : __low2float(pair);
  }
};

// Codes 2j and 2j + 1 of 8 that are floats, as halves.
template <class K>
__device__ __forceinline__ uint32_t float_pair(uint32_t word0, uint32_t word1, int j) {
  if constexpr (K::kLayout == Layout::kCodesE4M3) {
    const uint2 pairs = halves_of_float8(j < 2 ? word0 : word1);
    return j % 2 ? pairs.y : pairs.x;
  }
  // E2M1: the upper bytes of halves, in which bits 1 to 3 are exponent and mantissa. The lower bytes are zeros.
  const uint32_t even = (word0 << 4 & 0x80808080u) | (word0 << 1 & 0x0E0E0E0Eu),
                 odd = (word0 & 0x80808080u) | (word0 >> 3 & 0x0E0E0E0Eu);  // nibbles
  return __byte_perm(j % 2 ? odd : even, 0, j < 2 ? 0x2404 : 0x3414);
}

// Converts 8 codes to 4 pairs of code * 2^-24, or to pairs of codebook entries in the same unit, or of floats.
template <class K>
__device__ __forceinline__ void pairs_of(uint32_t (&pairs)[4], uint32_t word0, uint32_t word1, const uint32_t* table) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if constexpr (K::kFloats) {
      pairs[j] = float_pair<K>(word0, word1, j);
    } else if constexpr (K::kLayout == Layout::kCodebook4) {
      pairs[j] = table[word0 >> (8 * j) & 255];
    } else if constexpr (K::kLayout == Layout::kCodes4) {
      pairs[j] = word0 >> (4 * j) & 0x000F000Fu;
    } else {
      pairs[j] = __byte_perm(j < 2 ? word0 : word1, 0, j % 2 ? 0x4342 : 0x4140);
    }
  }
}

// The pair of -zero * 2^-24; with minima, the pair of 2^-24.
template <class K>
__device__ __forceinline__ uint32_t moving_pair(int zero) {
  return (K::kMin ? 1u : 0x8000u | static_cast<uint32_t>(zero)) * 0x10001u;
}

// acc += weights of one slot times the activations of its columns, divided by kPerLevel. `constant` is moving_pair().
template <class K, int kTokenTiles>
__device__ __forceinline__ void multiply(float (&acc)[kTokenTiles][4], const char* slot,
                                         const half* const (&x_of)[kTokenTiles], int lane, uint32_t constant,
                                         const uint32_t* table) {
  const uint4* pieces = reinterpret_cast<const uint4*>(slot) + lane;
  const auto load_x = [&](uint4(&x)[kTokenTiles], int k) {
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) x[i] = *reinterpret_cast<const uint4*>(x_of[i] + k);
  };
  const Scales<K> low_scales(slot, lane / 4), high_scales(slot, lane / 4 + 8);
  uint4 low = pieces[0], high = pieces[32];
#pragma unroll
  for (int u = 0; u < 4; ++u) {
    uint4 x[kTokenTiles];
    load_x(x, 32 * u);
    uint32_t a[4], b[4];  // rows g and g + 8
    if constexpr (K::kPieces == 4) {
      if (u == 2) low = pieces[64], high = pieces[96];
      pairs_of<K>(a, u % 2 ? low.z : low.x, u % 2 ? low.w : low.y, table);
      pairs_of<K>(b, u % 2 ? high.z : high.x, u % 2 ? high.w : high.y, table);
    } else {
      pairs_of<K>(a, u == 0 ? low.x : u == 1 ? low.y : u == 2 ? low.z : low.w, 0, table);
      pairs_of<K>(b, u == 0 ? high.x : u == 1 ? high.y : u == 2 ? high.z : high.w, 0, table);
    }
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) {
      float sums[2][4], moved[2][4];  // of the halves of the unit; if both have the same scale, all is in the first
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t x0 = h ? x[i].z : x[i].x, x1 = h ? x[i].w : x[i].y;
        const bool fresh = h == 0 || K::kGroup16;
        float(&sum)[4] = sums[K::kGroup16 ? h : 0];
        float(&move)[4] = moved[K::kGroup16 ? h : 0];
        fresh ? mma_new(sum, a[2 * h], b[2 * h], a[2 * h + 1], b[2 * h + 1], x0, x1)
              : mma(sum, a[2 * h], b[2 * h], a[2 * h + 1], b[2 * h + 1], x0, x1);
        if constexpr (K::kMin) {
          fresh ? mma_new(move, constant, constant, constant, constant, x0, x1)
                : mma(move, constant, constant, constant, constant, x0, x1);
        } else if constexpr (K::kZero) {
          mma(sum, constant, constant, constant, constant, x0, x1);
        }
      }
#pragma unroll
      for (int h = 0; h < (K::kGroup16 ? 2 : 1); ++h)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const Scales<K>& scales = j < 2 ? low_scales : high_scales;
          acc[i][j] += scales.get(u, h, false) * sums[h][j];
          if constexpr (K::kMin) acc[i][j] += scales.get(u, h, true) * moved[h][j];
        }
    }
  }
}

// The pair of two codebook entries times 2^-24.
__device__ __forceinline__ uint32_t pair_of_levels(int first, int second) {
  const auto bits = [](int level) { return static_cast<uint32_t>(level < 0 ? 0x8000 - level : level); };
  return bits(first) | bits(second) << 16;
}

// All pairs of codebook entries, so that one look-up gives two weights.
__device__ __forceinline__ void fill_table(uint32_t* table, const PackedWeight& w) {
  const int i = threadIdx.x;
  if (i >= 256) return;
  const auto level = [&](int code) { return quant::codebook_entry(w.codebook_low, w.codebook_high, code); };
  table[i] = pair_of_levels(level(i & 15), level(i >> 4));
}

}  // namespace ingot::cuda::matvec_step
