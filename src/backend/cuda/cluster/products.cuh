// A block's share of a product: integers times integers on tensor cores. The activations become 16-bit integers with a
// scale for each 128 columns, as in dot_codes.cu. The tensor core multiplies the high and the low byte as two columns.
// Its 8 columns are those of the four units of a tile. In the products of a unit, the columns of the other units are
// zeros. So one accumulator holds the sums of all units, and each sum is in the lanes that hold its scale.
#pragma once
#include "backend/cuda/cluster/cluster.cuh"
#include "backend/cuda/cluster/plan.cuh"

namespace ingot::cuda::cluster {

// 128 activations. A lane has either the high or the low bytes of columns 32 u + 4t to 32 u + 4t + 3, and of these plus
// 16.
struct Fragment {
  uint32_t first, second;
  int high, low;  // sums over unit t
  float scale;
};

// v: the 8 activations of unit lane / 8, lane t of four. `squares` becomes the warp's sum of squares.
__device__ __forceinline__ Fragment fragment_of(const float (&v)[8], float& squares, int lane) {
  constexpr float kLargest = 127 * 256;
  float amax = fabsf(v[0]);
#pragma unroll
  for (int i = 1; i < 8; ++i) amax = max_or_nan(amax, fabsf(v[i]));
#pragma unroll
  for (int s = 1; s <= 16; s *= 2) {
    if (s == 4) continue;  // lanes 4 apart have the same columns
    amax = max_or_nan(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, s));
    squares += __shfl_xor_sync(0xFFFFFFFFu, squares, s);
  }
  const float inverse = amax > 0 ? __fdividef(kLargest, amax) : 0.0f;
  uint32_t bytes[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int q = __float2int_rn(v[i] * inverse);
    bytes[i] = static_cast<uint32_t>(lane & 4 ? q : (q + 128) >> 8);  // q = 256 * high + low, where low is signed too
  }
  const auto pack = [&](int i) {
    return __byte_perm(__byte_perm(bytes[i], bytes[i + 1], 0x0040), __byte_perm(bytes[i + 2], bytes[i + 3], 0x0040),
                       0x5410);
  };
  Fragment f{pack(0), pack(4), 0, 0, amax * (1.0f / kLargest)};
  int sum = __dp4a(static_cast<int>(f.first), 0x01010101, __dp4a(static_cast<int>(f.second), 0x01010101, 0));
  sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
  sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
  f.high = __shfl_sync(0xFFFFFFFFu, sum, 8 * (lane % 4));
  f.low = __shfl_sync(0xFFFFFFFFu, sum, 8 * (lane % 4) + 4);
  return f;
}

// A lane's codes of a unit, for rows g and g + 8 of the tile.
template <bool kEight>
struct Codes {
  uint4 upper[kEight ? 2 : 1], lower[kEight ? 2 : 1];

  __device__ __forceinline__ explicit Codes(const uint4* from) {
#pragma unroll
    for (int i = 0; i < (kEight ? 2 : 1); ++i) upper[i] = from[64 * i], lower[i] = from[64 * i + 32];
  }
};

// Sums of rows g and g + 8 of a tile over its 128 columns; all lanes of a row get them.
template <bool kEight, bool kMin>
__device__ __forceinline__ float2 multiply(const Codes<kEight>& codes, const char* scales_at, int zero,
                                           const Fragment& f, const uint32_t (&first)[4], const uint32_t (&second)[4],
                                           int lane) {
  int even[4] = {}, odd[4] = {};
  if constexpr (kEight) {
    mma_bytes<false>(even, codes.upper[0].x, codes.lower[0].x, codes.upper[0].y, codes.lower[0].y, first[0], second[0]);
    mma_bytes<false>(odd, codes.upper[0].z, codes.lower[0].z, codes.upper[0].w, codes.lower[0].w, first[1], second[1]);
    mma_bytes<false>(even, codes.upper[1].x, codes.lower[1].x, codes.upper[1].y, codes.lower[1].y, first[2], second[2]);
    mma_bytes<false>(odd, codes.upper[1].z, codes.lower[1].z, codes.upper[1].w, codes.lower[1].w, first[3], second[3]);
  } else {
    const auto unpacked = [&](int(&sums)[4], int unit, uint32_t u, uint32_t l) {
      constexpr uint32_t kMask = 0x0F0F0F0Fu;
      mma_bytes<false>(sums, u & kMask, l & kMask, u >> 4 & kMask, l >> 4 & kMask, first[unit], second[unit]);
    };
    unpacked(even, 0, codes.upper[0].x, codes.lower[0].x);
    unpacked(odd, 1, codes.upper[0].y, codes.lower[0].y);
    unpacked(even, 2, codes.upper[0].z, codes.lower[0].z);
    unpacked(odd, 3, codes.upper[0].w, codes.lower[0].w);
  }
  const int all = 256 * f.high + f.low, zeros = zero * all;
  const float upper = static_cast<float>(256 * (even[0] + odd[0]) + even[1] + odd[1] - zeros),
              lower = static_cast<float>(256 * (even[2] + odd[2]) + even[3] + odd[3] - zeros);
  float2 out;
  if constexpr (kMin) {
    const auto* pairs = reinterpret_cast<const half2*>(scales_at) + lane;
    const float2 u = __half22float2(pairs[0]), l = __half22float2(pairs[32]);
    out = {u.x * upper + u.y * static_cast<float>(all), l.x * lower + l.y * static_cast<float>(all)};
  } else {
    const auto* halves = reinterpret_cast<const half*>(scales_at) + lane;
    out = {__half2float(halves[0]) * upper, __half2float(halves[32]) * lower};
  }
#pragma unroll
  for (int s = 1; s <= 2; s *= 2) {
    out.x += __shfl_xor_sync(0xFFFFFFFFu, out.x, s);
    out.y += __shfl_xor_sync(0xFFFFFFFFu, out.y, s);
  }
  return {out.x * f.scale, out.y * f.scale};
}

// The slot of the ring where a layer's units begin.
struct Ring {
  int slot = 0;

  __device__ __forceinline__ void next_layer(const Block& b) {
    for (slot += b.extent(kPhases).first_unit; slot >= b.p.n_slots;) slot -= b.p.n_slots;
  }
};

// Starts the copies of a tile's units to the ring, beginning at a slot. A tile is copied whole, or in two parts if the
// ring ends in between.
__device__ __forceinline__ void fetch_row(const Block& b, int layer, const Row& row, int slot) {
  const LayerProduct& w = b.layer(layer).products[row.weight];
  const int codes = code_bytes(w.layout == Layout::kCodes8), scales = scale_bytes(w.has_min);
  const char *codes_at = w.codes + int64_t{row.first_tile} * codes,
             *scales_at = w.scales + int64_t{row.first_tile} * scales;
  const uint32_t bar = b.phase_barrier(row.weight < kWeightOut    ? kQkv
                                       : row.weight == kWeightOut ? kOut
                                       : row.weight < kWeightDown ? kGateUp
                                                                  : kDown);
  expect_bytes(bar, row.k_tiles * (codes + scales));
  for (int k = 0; k < row.k_tiles;) {
    const int n = min(row.k_tiles - k, b.p.n_slots - slot);
    fetch(b.base + b.p.codes + slot * codes, codes_at + k * codes, n * codes, bar);
    fetch(b.base + b.p.scales + slot * scales, scales_at + k * scales, n * scales, bar);
    k += n, slot = 0;
  }
}

// State of the warp that fetches. The warp fetches as far ahead as the ring has room; each lane fetches a tile.
struct Fetcher {
  int layer, row, slot, room;

  __device__ __forceinline__ void run(const Block& b) {
    const Extent all = b.extent(kPhases);
    const int at = b.at<Row>(b.p.rows)[row].first_unit;
    int of_layer = layer, index = row + b.lane, ahead = -at;
    while (index >= all.first_row) index -= all.first_row, ahead += all.first_unit, ++of_layer;
    const Row mine = b.at<Row>(b.p.rows)[index];
    ahead += mine.first_unit;
    const bool goes = of_layer < b.p.step.n_layers && ahead + mine.k_tiles <= room;
    if (goes) {
      int to = slot + ahead;
      while (to >= b.p.n_slots) to -= b.p.n_slots;
      fetch_row(b, of_layer, mine, to);
    }
    const uint32_t lanes = __ballot_sync(0xFFFFFFFFu, goes);
    const int n = __popc(lanes), units = __reduce_add_sync(0xFFFFFFFFu, goes ? mine.k_tiles : 0);
    for (row += n; row >= all.first_row; row -= all.first_row) ++layer;
    for (slot += units; slot >= b.p.n_slots;) slot -= b.p.n_slots;
    room -= units;
  }
};

// Called after each phase, when the phase's units have been used, and once before all phases (phase -1).
__device__ __forceinline__ void fetch_ahead(const Block& b, int phase) {
  Fetcher now = *b.at<Fetcher>(b.p.fetcher);
  if (phase >= 0) now.room += b.extent(phase + 1).first_unit - b.extent(phase).first_unit;
  now.run(b);
  if (b.lane == 0) *b.at<Fetcher>(b.p.fetcher) = now;
  __syncwarp();
}

// 8 floats of a row: 4 from `column`, and 4 from column + 16.
struct Eight {
  float4 first, second;
};
__device__ __forceinline__ int column_of(int k, int lane) { return k * kTileCols + lane / 8 * 32 + lane % 4 * 4; }
__device__ __forceinline__ Eight eight_of(const float* row, int column) {
  const float4* at = reinterpret_cast<const float4*>(row + column);
  return {at[0], at[4]};
}
// 8 elements of a norm's weight, with zeros past the end of the row; ones if there is no weight.
__device__ __forceinline__ Eight weights_of(const float* weight, int column, int n) {
  const float4 ones = {1, 1, 1, 1};
  if (weight == nullptr) return {ones, ones};
  const float4* at = reinterpret_cast<const float4*>(weight + column);
  return {column < n ? __ldg(at) : float4{}, column + 16 < n ? __ldg(at + 4) : float4{}};
}

// The positions of the units of a warp's columns. The units are `row_step` tiles apart.
struct Walk {
  const char *codes, *scales;
  float* sums;
  int slot, n_slots, step;  // step: slots from one unit to the next
};

template <bool kEight, bool kMin>
__device__ __forceinline__ void multiply_tiles(const Block& b, Walk at, int n, int zero, const Fragment& f) {
  // Orders the activations like the masked codes: 0, 4, 1, 5, and 2, 6, 3, 7.
  const uint32_t mine0 = kEight ? f.first : __byte_perm(f.first, f.second, 0x5140),
                 mine1 = kEight ? f.second : __byte_perm(f.first, f.second, 0x7362);
  uint32_t first[4], second[4];
#pragma unroll
  for (int unit = 0; unit < 4; ++unit)
    first[unit] = b.lane / 8 == unit ? mine0 : 0, second[unit] = b.lane / 8 == unit ? mine1 : 0;
  const int code_stride = b.p.code_stride, scale_stride = b.p.scale_stride;
#pragma unroll 1
  for (int i = 0; i < n; i += 2) {  // two at a time, to hide latency
    int next = at.slot + at.step;
    if (next >= at.n_slots) next -= at.n_slots;
    if (i + 1 == n) next = at.slot;
    const Codes<kEight> codes0(reinterpret_cast<const uint4*>(at.codes + at.slot * code_stride) + b.lane),
        codes1(reinterpret_cast<const uint4*>(at.codes + next * code_stride) + b.lane);
    const float2 out0 =
        multiply<kEight, kMin>(codes0, at.scales + at.slot * scale_stride, zero, f, first, second, b.lane);
    const float2 out1 = multiply<kEight, kMin>(codes1, at.scales + next * scale_stride, zero, f, first, second, b.lane);
    if (b.lane % 4 == 0) {
      at.sums[0] = out0.x, at.sums[8] = out0.y;
      if (i + 1 < n) at.sums[at.step * kTileRows] = out1.x, at.sums[at.step * kTileRows + 8] = out1.y;
    }
    at.sums += 2 * at.step * kTileRows;
    at.slot = next + at.step;
    if (at.slot >= at.n_slots) at.slot -= at.n_slots;
  }
}

// Computes the warp's share of a product of the row, times `weight` if there is one. ready() waits for the row. Sums go
// to [tile, k, 16], the squares of the row to [k].
template <class Ready>
__device__ __forceinline__ void multiply_share(const Block& b, const Ring& ring, int layer, int phase, const float* row,
                                               const float* weight, Ready&& ready) {
  const Share s = b.at<Share>(b.p.shares)[b.warp * kPhases + phase];
  const Extent e = b.extent(phase);
  const int dim = b.p.step.shape.dim;
  Eight norm{};
  if (s.n_rows > 0) norm = weights_of(weight, column_of(s.first_k, b.lane), dim);
  if (s.n_rows > 0) await(b.phase_barrier(phase), layer & 1);
  ready();
  if (s.n_rows == 0) return;
  const LayerProduct& w = b.layer(layer).products[phase == kQkv      ? kWeightQ
                                                  : phase == kOut    ? kWeightOut
                                                  : phase == kGateUp ? kWeightGate
                                                                     : kWeightDown];
  const int zero = w.zero;
  const bool eight = w.layout == Layout::kCodes8, has_min = w.has_min;
#pragma unroll 1
  for (int k = s.first_k; k < e.k_tiles; k += kWarps) {
    if (k != s.first_k) norm = weights_of(weight, column_of(k, b.lane), dim);
    const Eight x = eight_of(row, column_of(k, b.lane));
    const float plain[8] = {x.first.x, x.first.y, x.first.z, x.first.w, x.second.x, x.second.y, x.second.z, x.second.w};
    const float factors[8] = {norm.first.x,  norm.first.y,  norm.first.z,  norm.first.w,
                              norm.second.x, norm.second.y, norm.second.z, norm.second.w};
    float v[8], squares = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) squares += plain[i] * plain[i], v[i] = plain[i] * factors[i];
    const Fragment f = fragment_of(v, squares, b.lane);
    if (b.lane == 0) b.at<float>(b.p.squares[phase % 2])[k] = squares;
    Walk at{b.at<char>(b.p.codes),
            b.at<char>(b.p.scales),
            b.at<float>(b.p.sums[phase % 2]) + (s.first_row * e.k_tiles + k) * kTileRows + b.lane / 4,
            ring.slot + e.first_unit + s.first_row * e.k_tiles + k,
            b.p.n_slots,
            s.row_step * e.k_tiles};
    while (at.slot >= at.n_slots) at.slot -= at.n_slots;
    if (eight) {
      has_min ? multiply_tiles<true, true>(b, at, s.n_rows, zero, f)
              : multiply_tiles<true, false>(b, at, s.n_rows, zero, f);
    } else {
      has_min ? multiply_tiles<false, true>(b, at, s.n_rows, zero, f)
              : multiply_tiles<false, false>(b, at, s.n_rows, zero, f);
    }
  }
}

}  // namespace ingot::cuda::cluster
