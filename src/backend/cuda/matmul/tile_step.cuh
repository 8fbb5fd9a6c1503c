// Shared by tile_matmul.cu, experts/tiles.cu and warpgroup_matmul.cu: the conversion of codes in a slot of shared
// memory (matvec_step.cuh) to the tensor core's operands in registers, as exact levels times the scale; the product
// of a step; and the choice of a kernel for a weight.
#pragma once

#include "backend/cuda/device.cuh"
#include "backend/cuda/matmul/matvec_step.cuh"

namespace ingot::cuda::tile_step {

using matvec_step::copy16;
using matvec_step::copy_step;
using matvec_step::From;
using matvec_step::from_of;
using matvec_step::Kind;

// The scales of units 2 * half and 2 * half + 1, for one row of a tile.
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
  // The scale or the minimum of group h of unit u of the half. Must be called with constants.
  __device__ __forceinline__ half2 get(int u, int h, bool min) const {
    const int i = (u * kPerUnit + h) * kFields + min;
    const half2 pair = half2_of(words[i / 2]);
    return i % 2 ? __high2half2(pair) : __low2half2(pair);
  }
};

// (v & mask) | bits
__device__ __forceinline__ uint32_t masked_or(uint32_t v, uint32_t mask, uint32_t bits) {
  uint32_t r;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(v), "r"(mask), "r"(bits));
  return r;
}

// Returns exact levels (packed_weight.h). `offset` is the pair of 1024 + zero. A code in the low bits of the f16 1024
// is the number 1024 + code. A code four bits higher is 1024 + 16 * code, which one multiply-add also reduces exactly.
template <class K>
__device__ __forceinline__ half2 level_pair(const uint32_t (&words)[2], int j, half2 offset, const uint32_t* table) {
  if constexpr (K::kFloats) return half2_of(matvec_step::float_pair<K>(words[0], words[1], j));
  if constexpr (K::kLayout == Layout::kCodebook4) return half2_of(table[words[0] >> (8 * j) & 255]);
  if constexpr (K::kLayout == Layout::kCodes4) {
    const uint32_t word = j < 2 ? words[0] : words[0] >> 8;
    if (j % 2 == 0) return __hsub2(half2_of(masked_or(word, 0x000F000Fu, 0x64006400u)), offset);
    const half2 sixteenth = __float2half2_rn(0.0625f),
                high_offset = __hsub2(__float2half2_rn(960.0f), offset);  // -(64 + zero)
    return __hfma2(half2_of(masked_or(word, 0x00F000F0u, 0x64006400u)), sixteenth, high_offset);
  }
  return __hsub2(half2_of(__byte_perm(words[j / 2], 0x64646464u, j % 2 ? 0x4342 : 0x4140)), offset);
}

// The lane's codes and scales of rows g and g + 8 of a tile, in half a step: two units. If `kLate`, decode() reads
// codes of 8 bits, so that only one unit of them is in registers.
template <class K, bool kLate = false>
struct HalfTile {
  static constexpr bool kBytes = K::kPieces == 4, kReads = kBytes && kLate;
  const uint4* codes;                    // of row g; row g + 8 follows after 32 lanes
  uint32_t words[2][2][kBytes ? 2 : 1];  // [row, unit]
  HalfScales<K> scales[2];

  __device__ __forceinline__ HalfTile(const char* slot, int half, int lane)
      : codes(reinterpret_cast<const uint4*>(slot) + (kBytes ? 64 * half : 0) + lane),
        scales{{slot, lane / 4, half}, {slot, lane / 4 + 8, half}} {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if constexpr (kBytes && !kReads) {
        const uint4 v = codes[32 * r];
        words[r][0][0] = v.x, words[r][0][1] = v.y, words[r][1][0] = v.z, words[r][1][1] = v.w;
      } else if constexpr (!kBytes) {
        const uint2 v = reinterpret_cast<const uint2*>(codes + 32 * r)[half];
        words[r][0][0] = v.x, words[r][1][0] = v.y;
      }
    }
  }
  // The lane's 8 weights of both rows in unit u of the half. Must be called with constants.
  __device__ __forceinline__ void decode(uint32_t (&a)[2][4], int u, half2 offset, const uint32_t* table) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      uint32_t both[2] = {words[r][u][0], kBytes ? words[r][u][kBytes ? 1 : 0] : 0};
      if constexpr (kReads) {
        const uint2 v = reinterpret_cast<const uint2*>(codes + 32 * r)[u];
        both[0] = v.x, both[1] = v.y;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int h = K::kGroup16 ? j / 2 : 0;
        const half2 level = level_pair<K>(both, j, offset, table), scale = scales[r].get(u, h, false);
        a[r][j] = bits_of(K::kMin ? __hfma2(level, scale, scales[r].get(u, h, true)) : __hmul2(level, scale));
      }
    }
  }
};

// A step of dense weights: 64 columns of 16 rows. In each 32 columns, lane t owns columns 8t to 8t + 7. They are in
// four pieces: rows g and g + 8 of both halves of the step.
struct Dense {
  static constexpr Layout kLayout = Layout::kDense;
  static constexpr int kCols = 64, kSlotBytes = 2048;
};

// Bytes from one row of a step's activations to the next in shared memory, against bank conflicts.
template <class K>
inline constexpr int kInputRowBytes = 2 * K::kCols + (K::kLayout == Layout::kDense ? 64 : 32);

// Finds a lane's part of a tile of 16 rows of weights, step by step.
template <class K>
struct Source {
  From from;

  __device__ __forceinline__ Source(const PackedWeight& w, int tile, int lane, int first_step = 0)
      : from(from_of<K>(w, tile, lane)) {
    from.codes += int64_t{first_step} * (512 * K::kPieces);
    from.scales += int64_t{first_step} * (32 * K::kScaleBytes);
  }
  __device__ __forceinline__ void copy_next(uint32_t slot, int lane, bool wanted) {
    if (wanted) copy_step<K>(slot, from, lane);
    from.codes += 512 * K::kPieces;
    from.scales += 32 * K::kScaleBytes;
  }
};

template <>
struct Source<Dense> {
  const half* rows[2];
  int column, n_in;

  __device__ __forceinline__ Source(const PackedWeight& w, int tile, int lane, int first_step = 0)
      : column(8 * (lane % 4) + first_step * Dense::kCols), n_in(static_cast<int>(w.n_in)) {
    const half* data = static_cast<const half*>(w.data);
#pragma unroll
    for (int r = 0; r < 2; ++r)
      rows[r] = data + min(int64_t{tile} * kTileRows + lane / 4 + 8 * r, w.n_out - 1) * w.n_in;
  }
  __device__ __forceinline__ void copy_next(uint32_t slot, int lane, bool wanted) {
    if (wanted) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = column + i / 2 * 32;
        copy16(slot + 512 * i + 16 * lane, rows[i % 2] + (at < n_in ? at : 0), at < n_in);
      }
    }
    column += Dense::kCols;
  }
};

// The lane's operands of one unit, of a tile and of a row of activations. Must be called with constant units.
template <class K>
__device__ __forceinline__ void load_weights(uint32_t (&a)[2][4], const char* slot, int unit, int lane, half2 offset,
                                             const uint32_t* table) {
  if constexpr (K::kLayout == Layout::kDense) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint4 v = reinterpret_cast<const uint4*>(slot)[32 * (2 * unit + r) + lane];
      a[r][0] = v.x, a[r][1] = v.y, a[r][2] = v.z, a[r][3] = v.w;
    }
  } else {
    HalfTile<K>(slot, unit / 2, lane).decode(a, unit % 2, offset, table);
  }
}
template <class K>
__device__ __forceinline__ uint4 load_input(const char* row, int unit, int t) {
  if constexpr (K::kLayout == Layout::kDense) return *reinterpret_cast<const uint4*>(row + 64 * unit + 16 * t);
  const uint2 x0 = *reinterpret_cast<const uint2*>(row + 64 * unit + 8 * t),
              x1 = *reinterpret_cast<const uint2*>(row + 64 * unit + 32 + 8 * t);
  return make_uint4(x0.x, x0.y, x1.x, x1.y);
}

// acc += a step of a warp's tiles, in neighbouring slots, times its rows of activations.
template <class K, int kPerWarp, int kTokenTiles>
__device__ __forceinline__ void multiply_step(float (&acc)[kPerWarp][kTokenTiles][4], const char* slots,
                                              const char* input, int lane, half2 offset, const uint32_t* table) {
  const char* row = input + lane / 4 * kInputRowBytes<K>;
#pragma unroll
  for (int unit = 0; unit < K::kCols / 32; ++unit) {
    uint32_t a[kPerWarp][2][4];
#pragma unroll
    for (int j = 0; j < kPerWarp; ++j) load_weights<K>(a[j], slots + j * K::kSlotBytes, unit, lane, offset, table);
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) {
      const uint4 x = load_input<K>(row + 8 * i * kInputRowBytes<K>, unit, lane % 4);
#pragma unroll
      for (int j = 0; j < kPerWarp; ++j) mma(acc[j][i], a[j][0][0], a[j][1][0], a[j][0][1], a[j][1][1], x.x, x.y);
#pragma unroll
      for (int j = 0; j < kPerWarp; ++j) mma(acc[j][i], a[j][0][2], a[j][1][2], a[j][0][3], a[j][1][3], x.z, x.w);
    }
  }
}

// Whether multiply_codes() is faster for these weights: without minima, and with one scale for 32 columns.
template <class K>
inline constexpr bool kScalesSums = !K::kMin && !K::kGroup16;
template <>
inline constexpr bool kScalesSums<Dense> = false;

// As multiply_step() with one tile of tokens, but acc is divided by kPerLevel. The tensor core multiplies codes, and
// the scales multiply the sums of a unit (matvec_step.cuh). For so few tokens, this takes a quarter fewer instructions.
// The results differ in the last bits. `constant` and `table` are those of matvec_step::multiply().
template <class K, int kPerWarp>
__device__ __forceinline__ void multiply_codes(float (&acc)[kPerWarp][1][4], const char* slots, const char* input,
                                               int lane, uint32_t constant, const uint32_t* table) {
  const char* row = input + lane / 4 * kInputRowBytes<K>;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const auto tile = [&](int j) { return HalfTile<K>(slots + j * K::kSlotBytes, half, lane); };
    const HalfTile<K> tiles[2] = {tile(0), tile(kPerWarp - 1)};
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      const uint4 x = load_input<K>(row, 2 * half + u, lane % 4);
      float moved[4] = {};  // -zero times the sum of x, for all rows of weights
      if constexpr (K::kZero) {
        mma_new(moved, constant, constant, constant, constant, x.x, x.y);
        mma(moved, constant, constant, constant, constant, x.z, x.w);
      }
#pragma unroll
      for (int j = 0; j < kPerWarp; ++j) {
        uint32_t a[2][4];
#pragma unroll
        for (int r = 0; r < 2; ++r)
          matvec_step::pairs_of<K>(a[r], tiles[j].words[r][u][0], tiles[j].words[r][u][K::kPieces == 4 ? 1 : 0], table);
        float sum[4];
        mma_add(sum, a[0][0], a[1][0], a[0][1], a[1][1], x.x, x.y, moved);
        mma(sum, a[0][2], a[1][2], a[0][3], a[1][3], x.z, x.w);
#pragma unroll
        for (int e = 0; e < 4; ++e) acc[j][0][e] += __low2float(tiles[j].scales[e / 2].get(u, 0, false)) * sum[e];
      }
    }
  }
}

// Waits for the oldest of n_stages - 1 copies. There are 2 to 4 stages, each with a step's weights and activations.
__device__ __forceinline__ void await_stage(int n_stages) {
  n_stages == 2   ? matvec_step::await_copies<0>()
  : n_stages == 3 ? matvec_step::await_copies<1>()
                  : matvec_step::await_copies<2>();
}

// The steps of a block. The copies of the first n_stages - 1 steps are in flight. copy(stage, step) starts those of a
// later step, if there is one, and calls end_copies(); multiply(stage) uses a stage whose copies have arrived.
template <class Copy, class Multiply>
__device__ __forceinline__ void run_steps(int begin, int end, int n_stages, Copy&& copy, Multiply&& multiply) {
  int stage = 0, ahead = n_stages - 1;
  for (int step = begin; step < end; ++step) {
    await_stage(n_stages);
    __syncthreads();
    copy(ahead, step + n_stages - 1);
    multiply(stage);
    stage = stage + 1 == n_stages ? 0 : stage + 1;
    ahead = ahead + 1 == n_stages ? 0 : ahead + 1;
  }
  matvec_step::await_copies<0>();
}

// Pairs of codebook entries as halves.
__device__ __forceinline__ void fill_levels(uint32_t* table, const PackedWeight& w) {
  const int i = threadIdx.x;
  if (i >= 256) return;
  const auto level = [&](int code) {
    return __int2half_rn(quant::codebook_entry(w.codebook_low, w.codebook_high, code));
  };
  table[i] = bits_of(__halves2half2(level(i & 15), level(i >> 4)));
}

}  // namespace ingot::cuda::tile_step
