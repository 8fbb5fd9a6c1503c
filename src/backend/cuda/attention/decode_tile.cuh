// A warp's tile of decode attention: 8 kTiles packed rows, and 32 keys at a time. The products are transposed: their 16
// rows are keys or columns of values, and their 8 columns are the packed rows. So a group of up to 8 query heads fills
// a product. With lane = 4g + t, a lane has packed rows 2t and 2t + 1 of each 8.
//
// Keys and values are read from shared memory by ldmatrix, in pieces of 16 bytes: the lane gets word t of key g for
// products with keys, and 16-bit element g of values 2t and 2t + 1 for products with values. Both become pairs of
// halves. The order of columns within a product does not matter, so each type has the order that is the cheapest.
#pragma once
#include "backend/cuda/attention/attention.cuh"

namespace ingot::cuda::attention {

// A slot in shared memory: 32 rows of keys or of values, then their scales. Within a row, the pieces of 16 bytes are
// swizzled, so that a piece of 8 rows covers all banks.
template <int kDim, class K>
struct Slot {
  using Element = K;
  static constexpr int kRowBytes = kDim * kBits<K> / 8, kPieces = kRowBytes / 16;
  static constexpr int kGroups = kIsScaled<K> ? scale_groups(kDim) : 0;  // scales of a row
  static constexpr int kScales = kKeys * kRowBytes, kBytes = (kScales + kKeys * kGroups * 2 + 127) / 128 * 128;
  static constexpr int kSwapped = kPieces % 8 == 0 ? 8 : kPieces % 4 == 0 ? 4 : kPieces % 2 == 0 ? 2 : 1;
  // A unit is what one or two products of the tensor cores use: a piece, or two of 16-bit elements.
  static constexpr int kUnitPieces = kBits<K> == 16 ? 2 : 1, kUnits = kPieces / kUnitPieces;
  static constexpr int kPairs = kBits<K> == 4 ? 4 : 2;  // of halves, of a lane, of a row (or two) of a unit
  static constexpr int kUnitColumns = 8 * kPairs;

  __device__ static constexpr int swap_of(int row) { return row / (8 / kSwapped) % kSwapped; }
  __device__ static constexpr int place(int row, int piece) { return row * kRowBytes + 16 * (piece ^ swap_of(row)); }
  // The place from which a lane loads its first piece. Four times 8 lanes load 8 rows each: of one piece of 32 rows, or
  // of two pieces of 16 rows, in the order of the registers of a product.
  template <bool kTwoRows>
  __device__ static constexpr int first_place(int lane) {
    if (kUnitPieces == 1) return place(lane, 0);
    return kTwoRows ? place(lane / 16 * 8 + lane % 8, lane / 8 % 2) : place(lane % 16, lane / 16);
  }
  // The same for another piece.
  __device__ static constexpr uint32_t at_piece(uint32_t first, int piece) {
    return (first ^ (16 * (piece % kSwapped))) + 16 * (piece / kSwapped * kSwapped);
  }
  // The first of the two columns of a key's pair n.
  __device__ static constexpr int key_column(int unit, int n, int t) {
    const int at = kBits<K> == 16 ? 8 * n + 2 * t : 2 * kPairs * t + 2 * n;
    return unit * kUnitColumns + at;
  }
  // The column of pair n of two values.
  __device__ static constexpr int value_column(int unit, int n, int g) {
    const int at = kBits<K> == 16 ? 8 * n + g : kBits<K> == 8 ? 2 * g + n : g / 2 * 8 + g % 2 + 2 * n;
    return unit * kUnitColumns + at;
  }
};

// The pairs of halves of a word that ldmatrix loaded, from one row or from two.
template <bool kTwoRows, class K, int n>
__device__ __forceinline__ void unpack(uint32_t (&pairs)[n], uint32_t word, const K*) {
  if constexpr (kBits<K> == 4) {
#pragma unroll
    for (int j = 0; j < 4; ++j) pairs[j] = halves_of_nibbles(word >> 4 * j);
  } else {
    const uint32_t v = kTwoRows ? __byte_perm(word, 0, 0x3120) : word;
    uint2 x;
    if constexpr (kIsScaled<K>)
      x = halves_of_bytes(v);
    else
      x = halves_of_four(v);
    pairs[0] = x.x, pairs[1] = x.y;
  }
}

// Transposes an 8 x 8 matrix of halves. A lane has two elements of row g, before and after.
__device__ __forceinline__ uint32_t transposed(uint32_t pair) {
  uint32_t v;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(v) : "r"(pair));
  return v;
}

template <int kDim, class K, class V, int kTiles>
struct DecodeTile {
  using Keys = Slot<kDim, K>;
  using Values = Slot<kDim, V>;
  static constexpr int kSteps = kDim / 16;  // products of 16 columns
  uint32_t q[kTiles][kSteps][2];
  float out[kTiles][kSteps][4];
  float row_max[kTiles][2], total[kTiles][2];  // of rows 2t and 2t + 1; total: of the lane's keys

  __device__ DecodeTile(const Params& p, int token0, int head0, int n_rows, int g, int t) {
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
      const int row = 8 * r + g;
      const half* from = p.q + (token0 + row / p.group) * p.q_stride + (head0 + row % p.group) * kDim;
#pragma unroll
      for (int i = 0; i < kSteps; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int n = 2 * i + h, column = Keys::key_column(n / Keys::kPairs, n % Keys::kPairs, t);
          q[r][i][h] = row < n_rows ? *reinterpret_cast<const uint32_t*>(from + column) : 0;
        }
#pragma unroll
      for (int i = 0; i < kSteps; ++i) out[r][i][0] = out[r][i][1] = out[r][i][2] = out[r][i][3] = 0;
      row_max[r][0] = row_max[r][1] = kNone, total[r][0] = total[r][1] = 0;
    }
  }

  // The left operands of the products of a unit with rows 16m to 16m + 15 of the slot. first: the address of
  // Slot::first_place.
  template <class S>
  using Operands = uint32_t[2][S::kPairs / 2][4];  // [m][product]
  template <class S, bool kTwoRows>
  __device__ static __forceinline__ void load_unit(Operands<S>& a, uint32_t first, int unit) {
    if constexpr (S::kUnitPieces == 2) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const uint32_t at = S::at_piece(first, 2 * unit) + m * 16 * S::kRowBytes;
        if constexpr (kTwoRows)
          load_transposed(a[m][0], at);
        else
          load_matrices(a[m][0], at);
        if constexpr (std::is_same_v<typename S::Element, __nv_bfloat16>) {
#pragma unroll
          for (uint32_t& pair : a[m][0]) pair = halves_of(*reinterpret_cast<const __nv_bfloat162*>(&pair));
        }
      }
    } else {
      uint32_t words[4];
      if constexpr (kTwoRows)
        load_transposed(words, S::at_piece(first, unit));
      else
        load_matrices(words, S::at_piece(first, unit));
#pragma unroll
      for (int o = 0; o < 4; ++o) {
        uint32_t pairs[S::kPairs];
        unpack<kTwoRows>(pairs, words[o], static_cast<const typename S::Element*>(nullptr));
#pragma unroll
        for (int n = 0; n < S::kPairs; ++n)
          a[o / 2][n / 2][kTwoRows ? o % 2 * 2 + n % 2 : n % 2 * 2 + o % 2] = pairs[n];
      }
    }
  }
  template <class S>
  __device__ static __forceinline__ half scale(const char* slot, int row, int unit) {
    return reinterpret_cast<const half*>(slot + S::kScales)[row * S::kGroups + unit * S::kUnitColumns / kScaleGroup];
  }

  // scores[r][m] = keys 16m to 16m + 15 of the slot times rows 8r to 8r + 7: of keys g and g + 8, two rows each.
  __device__ __forceinline__ void score(float (&scores)[kTiles][2][4], const char* slot, uint32_t first, int g) const {
#pragma unroll
    for (int r = 0; r < kTiles; ++r)
#pragma unroll
      for (int m = 0; m < 2; ++m) scores[r][m][0] = scores[r][m][1] = scores[r][m][2] = scores[r][m][3] = 0;
#pragma unroll
    for (int unit = 0; unit < Keys::kUnits; ++unit) {
      Operands<Keys> k;
      load_unit<Keys, false>(k, first, unit);
      if constexpr (kIsScaled<K>) {
#pragma unroll
        for (int o = 0; o < 4; ++o) {
          const half2 s = __half2half2(scale<Keys>(slot, 8 * o + g, unit));
#pragma unroll
          for (auto& product : k[o / 2])
            product[o % 2] = times(product[o % 2], s), product[2 + o % 2] = times(product[2 + o % 2], s);
        }
      }
#pragma unroll
      for (int i = 0; i < Keys::kPairs / 2; ++i)
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
          for (int r = 0; r < kTiles; ++r) {
            const auto& b = q[r][unit * (Keys::kPairs / 2) + i];
            mma(scores[r][m], k[m][i][0], k[m][i][1], k[m][i][2], k[m][i][3], b[0], b[1]);
          }
    }
  }

  // Applies scale, cap and mask to the scores of 32 keys from key0. Every row sees the keys of `all`.
  __device__ __forceinline__ void mask(float (&scores)[kTiles][2][4], const Params& p, int key0, int kv_len, int q_len,
                                       int n_rows, const Span& all, int g, int t) const {
#pragma unroll
    for (int r = 0; r < kTiles; ++r)
#pragma unroll
      for (int j = 0; j < 4; ++j) scores[r][0][j] *= p.scale, scores[r][1][j] *= p.scale;
    if (p.softcap > 0) {
      const float cap = p.softcap * 1.44269504f, inverse = 1.0f / p.softcap;
#pragma unroll
      for (int r = 0; r < kTiles; ++r)
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          float& score = scores[r][j / 4][j % 4];
          score = cap * tanhf(score * inverse);
        }
    }
    if (key0 >= all.begin && key0 + kKeys <= all.end) return;
#pragma unroll
    for (int r = 0; r < kTiles; ++r)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const Span span = span_of(p, kv_len, q_len, min(8 * r + 2 * t + e, n_rows - 1));
#pragma unroll
        for (int o = 0; o < 4; ++o) {
          const int key = key0 + 8 * o + g;
          if (key < span.begin || key >= span.end) scores[r][o / 2][o % 2 * 2 + e] = kNone;
        }
      }
  }

  // Turns scores into weights, in place, and rescales the sums to the new maximum.
  __device__ __forceinline__ void softmax_update(float (&scores)[kTiles][2][4]) {
#pragma unroll
    for (int r = 0; r < kTiles; ++r)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        auto& s = scores[r];
        float largest = fmaxf(row_max[r][e], fmaxf(fmaxf(s[0][e], s[0][2 + e]), fmaxf(s[1][e], s[1][2 + e])));
#pragma unroll
        for (int i = 4; i < 32; i *= 2) largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, i));
        const float base = largest == kNone ? 0.0f : largest, shrink = fast_exp2(row_max[r][e] - base);
        row_max[r][e] = largest;
        total[r][e] *= shrink;
#pragma unroll
        for (int o = 0; o < 4; ++o) {
          float& score = s[o / 2][o % 2 * 2 + e];
          score = fast_exp2(score - base);
          total[r][e] += score;
        }
#pragma unroll
        for (int i = 0; i < kSteps; ++i) out[r][i][e] *= shrink, out[r][i][2 + e] *= shrink;
      }
  }

  // Adds weights times the slot's values to the sums. The first n_valid keys of the slot exist.
  __device__ __forceinline__ void add_values(const float (&weights)[kTiles][2][4], const char* slot, uint32_t first,
                                             int n_valid, int t) {
    uint32_t b[kTiles][2][2];
#pragma unroll
    for (int r = 0; r < kTiles; ++r)
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          b[r][m][h] = transposed(bits_of(__floats2half2_rn(weights[r][m][2 * h], weights[r][m][2 * h + 1])));
#pragma unroll
    for (int unit = 0; unit < Values::kUnits; ++unit) {
      Operands<Values> v;
      load_unit<Values, true>(v, first, unit);
      if constexpr (kIsScaled<V>) {
#pragma unroll
        for (int o = 0; o < 4; ++o) {
          const int key = 8 * o + 2 * t;  // the scale of a missing key may be NaN
          const half2 s = __halves2half2(key < n_valid ? scale<Values>(slot, key, unit) : half{},
                                         key + 1 < n_valid ? scale<Values>(slot, key + 1, unit) : half{});
#pragma unroll
          for (auto& product : v[o / 2])
            for (int h = o % 2 * 2; h < o % 2 * 2 + 2; ++h) product[h] = times(product[h], s);
        }
      }
#pragma unroll
      for (int i = 0; i < Values::kPairs / 2; ++i)
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
          for (int r = 0; r < kTiles; ++r)
            mma(out[r][unit * (Values::kPairs / 2) + i], v[m][i][0], v[m][i][1], v[m][i][2], v[m][i][3], b[r][m][0],
                b[r][m][1]);
    }
  }

  // Calls f(row, column, sum) for the sums of this lane.
  template <class F>
  __device__ __forceinline__ void each_sum(int g, int t, F&& f) const {
#pragma unroll
    for (int r = 0; r < kTiles; ++r)
#pragma unroll
      for (int n = 0; n < 2 * kSteps; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          f(8 * r + 2 * t + e, Values::value_column(n / Values::kPairs, n % Values::kPairs, g),
            out[r][n / 2][n % 2 * 2 + e]);
  }
  // Calls f(row, maximum, total) for the rows of lanes with g = 0, after adding the totals of the other lanes.
  template <class F>
  __device__ __forceinline__ void each_total(int g, int t, F&& f) {
#pragma unroll
    for (int r = 0; r < kTiles; ++r)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int i = 4; i < 32; i *= 2) total[r][e] += __shfl_xor_sync(0xFFFFFFFFu, total[r][e], i);
        if (g == 0) f(8 * r + 2 * t + e, row_max[r][e], total[r][e]);
      }
  }
};

}  // namespace ingot::cuda::attention
