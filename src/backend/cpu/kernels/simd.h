// The vectors in which the kernels are written: the compiler's own vector types, as wide as the instruction set for
// which this file is compiled. isa/ has a header for each instruction set, with the functions for which it has
// instructions that C++ cannot express. What several sets share is in headers that theirs include (isa/neon_base.h):
//
//   sum, largest                        over the lanes of a vector
//   load_f16, store_f16, load_widened,  conversions: f16 to f32 and back, bytes to 16 and 32 bits, 32 bits to bytes
//   load_bytes, store_s8
//   dot2_bf16, dot2_int16               each lane plus the dot product of two pairs of bf16, or of 16-bit integers
//   dot4, dot4_small                    each lane plus the dot product of its four codes with the four signed bytes of
//                                       `a`. Codes are unsigned if the instruction needs unsigned codes (kSignedCodes
//                                       false), otherwise signed. Small codes (under 128) work in both cases
//   widen, high_bytes                   of Words: 16 bytes as words; the high bytes of products of at most 16 bits
//   dot_words                           the sum of all lanes grows by the dot product of 16 pairs of words with a sign
//   lookup16                            table[code] for each byte of `codes`; codes are below 16, and `table` is a
//                                       result of repeat16
//   four_words                          four words as a vector
//   dot_scaled, with_signs_of and more  products with the blocks of a file, for kAtOnce groups: isa/one_group.h lists
//                                       them, and isa/two_groups.h has them for sets whose vectors hold two groups
//   kLooksUpBytes                       look_up and look_up_bytes exist (isa/avx512bf16.h)
//   kBf16Dot                            dot2_bf16 is an instruction, so bf16 weights multiply bf16 activations
//   kBf16Blocks                         store_bf16 and store_pairs exist (bf16_panel.cc)
//   kAddsPairs                          pairs_of, add_pairs and sums_of_pairs exist (pair_products.h)
//   kMultipliesByLane, kActQuads        multiply_by_lane exists (isa/neon_lanes.h), with this many quads of a token
//                                       together
//
// Every kernel source is compiled once for each instruction set (cmake/cpu_kernels.cmake), in the namespace INGOT_ISA.
// This header and the kernel sources must not define `inline` symbols that other code also has: the linker would keep
// one copy, perhaps the one with instructions that the machine lacks. So functions are static, and no header with
// inline bodies is included.
#pragma once
#include INGOT_ISA_HEADER

namespace ingot::cpu::INGOT_ISA {

INLINE F to_float(I v) { return __builtin_convertvector(v, F); }
INLINE F min(F a, F b) { return a < b ? a : b; }  // b if either is NaN
INLINE F max(F a, F b) { return a > b ? a : b; }
INLINE F abs(F v) { return (F)((I)v & 0x7FFFFFFF); }

// Nearest integer, ties to even, for |v| < 2^22.
INLINE I round_to_int(F v) {
  const F magic = all(12582912.0f);
  return (I)(v + magic) - (I)magic;
}

// The larger of two numbers without a sign. NaN wins, because its bits are the largest integer.
INLINE F larger_size(F a, F b) { return (F)((I)a > (I)b ? (I)a : (I)b); }
INLINE float largest_size(F v) {
  int32_t lanes[W], top = 0;
  __builtin_memcpy(lanes, &v, sizeof(v));
  for (int i = 0; i < W; ++i) top = lanes[i] > top ? lanes[i] : top;
  float value;
  __builtin_memcpy(&value, &top, 4);
  return value;
}

// The lanes that a row of n elements has from i on; the other lanes are 0 and are not stored.
INLINE F load_part(const float* p, int64_t i, int64_t n) {
  if (i + W <= n) return load(p + i);
  float rest[W] = {};
  __builtin_memcpy(rest, p + i, (size_t)(n - i) * 4);
  return load(rest);
}
INLINE void store_part(float* p, int64_t i, int64_t n, F v) {
  if (i + W <= n) return store(p + i, v);
  float rest[W];
  store(rest, v);
  __builtin_memcpy(p + i, rest, (size_t)(n - i) * 4);
}

// ---- prefetching ----

// The hardware's prefetcher reads a single dense stream at nine tenths of the bandwidth, but the several streams of a
// panel (scales, codes) at only half. Tiles of few tokens spend their time on reading weights, so they prefetch the
// lines themselves. Panels are stored one after another, so the prefetch runs on into the next panel.
constexpr int kPrefetchTokens = 4;
// A core of Intel's servers waits for at most 48 lines (3 KiB) that its second-level cache has asked for. With 6 KiB,
// such a core reads weights of four bits a fifth more slowly; on Zen 4, values from 2 to 8 KiB differ little.
constexpr int kPrefetchAhead = 3072, kNearAhead = 1024;  // bytes

// Into the second-level cache; p is kPrefetchAhead bytes from the bytes in use. With `near`, also into the first-level
// cache, a little before use.
template <int n_bytes, bool near = false>
INLINE void prefetch(const uint8_t* p) {
#pragma GCC unroll 32
  for (int i = 0; i < (n_bytes + 63) / 64; ++i) __builtin_prefetch(p + i * 64, 0, 2);
  if constexpr (near) {
#pragma GCC unroll 32
    for (int i = 0; i < (n_bytes + 63) / 64; ++i) __builtin_prefetch(p + i * 64 - kPrefetchAhead + kNearAhead, 0, 3);
  }
}

// ---- 16-bit floats ----

INLINE F load_bf16(const uint16_t* p) {
  return (F)(__builtin_convertvector(load_as<H>(p), U) << 16);
}

// To the nearest bfloat16, ties to even, in the low half of each lane. NaN becomes some NaN or infinity.
INLINE U bf16_bits(F v) {
  const U bits = (U)v;
  return (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
}

template <int... i>
struct Lanes {};
template <int n, int... i>
struct LanesOf : LanesOf<n - 1, n - 1, i...> {};
template <int... i>
struct LanesOf<0, i...> : Lanes<i...> {};
// In each four lanes, interleaves two lanes of a and b, one by one or as a pair, from the first (from = 0) or the third
// (from = 2) on: a0 b0 a1 b1, or a0 a1 b0 b1.
template <int from, int... i>
INLINE F zip(F a, F b, Lanes<i...>) {
  return __builtin_shufflevector(a, b, (i / 4 * 4 + from + i % 4 / 2 + i % 2 * W)...);
}
template <int from, int... i>
INLINE F zip_pairs(F a, F b, Lanes<i...>) {
  return __builtin_shufflevector(a, b, (i / 4 * 4 + from + i % 2 + i % 4 / 2 * W)...);
}
// Exchanges the second n lanes of each 2n lanes of a with the first n lanes of b.
template <int n, int... i>
INLINE void exchange(F& a, F& b, Lanes<i...>) {
  const F first = __builtin_shufflevector(a, b, (i & n ? W + i - n : i)...);
  b = __builtin_shufflevector(a, b, (i & n ? W + i : i + n)...);
  a = first;
}
template <int n>
INLINE void exchange_rows(F (&rows)[W]) {
#pragma GCC unroll 16
  for (int i = 0; i < W; ++i)
    if ((i & n) == 0) exchange<n>(rows[i], rows[i + n], LanesOf<W>());
}
// Transposes rows and columns: first each square of 4 by 4, then the places of the squares.
INLINE void transpose(F (&rows)[W]) {
  constexpr LanesOf<W> lanes;
#pragma GCC unroll 4
  for (int i = 0; i < W; i += 4) {
    const F a = zip<0>(rows[i], rows[i + 1], lanes), b = zip<2>(rows[i], rows[i + 1], lanes);
    const F c = zip<0>(rows[i + 2], rows[i + 3], lanes), d = zip<2>(rows[i + 2], rows[i + 3], lanes);
    rows[i] = zip_pairs<0>(a, c, lanes);
    rows[i + 1] = zip_pairs<2>(a, c, lanes);
    rows[i + 2] = zip_pairs<0>(b, d, lanes);
    rows[i + 3] = zip_pairs<2>(b, d, lanes);
  }
  if constexpr (W >= 8) exchange_rows<4>(rows);
  if constexpr (W >= 16) exchange_rows<8>(rows);
}

INLINE F f16_lanes(H half) {
  uint16_t halves[W];
  __builtin_memcpy(halves, &half, sizeof(half));
  return load_f16(halves);
}

// Loads W E4M3 numbers of 8 bits. Shifted left by 7 bits they are f16 numbers divided by 2^8, except for NaN.
INLINE F load_e4m3(const uint8_t* p) {
  const H bytes = load_widened(p);
  const H magnitude = (H)((bytes & 0x7F) << 7), none = (H)(magnitude == 0x3F80) & 0x7E00;
  return f16_lanes((H)((bytes & 0x80) << 8) | magnitude | none) * 256.0f;
}

// Loads W E4M3 numbers that have no sign, divided by 2^8.
INLINE F load_ue4m3(const uint8_t* p) {
  const H bytes = load_widened(p), none = (H)(bytes == 0x7F) & 0x7E00;
  return f16_lanes((H)(bytes << 7) | none);
}

// The nearest E4M3, ties to even, in the low bits of each lane; numbers above 448 become 448 (quant/f8_e4m3.h).
INLINE U e4m3_bits(F v) {
  const U sign = ((U)v >> 24) & 0x80u, exact = (U)v & 0x7FFFFFFFu;
  const F magnitude = min((F)exact, all(448.0f));
  const U bits = (U)magnitude;
  const U normal = ((bits + 0x7FFFFu + ((bits >> 20) & 1u)) >> 20) - (120u << 3);
  const U small = (U)(magnitude + 16384.0f) - (U)all(16384.0f);  // below 2^-6 the numbers are 2^-9 apart
  const U code = (I)bits < 0x3C800000 ? small : normal;
  return sign | ((I)exact > 0x7F800000 ? U{} + 0x7Fu : code);
}

INLINE F load_s8(const int8_t* p) { return to_float(load_bytes((const uint8_t*)p)); }
// Four bits of each byte, from bit `shift` on, less 8.
INLINE F load_nibbles(const uint8_t* p, int shift) { return to_float(((load_bytes(p) >> shift) & 15) - 8); }

// Powers of two, stored as the exponent byte of an f32; 0 means 2^-127.
INLINE F load_e8m0(const uint8_t* p) {
  const I bits = (load_bytes(p) & 255) << 23, least = all(0x00400000);
  return (F)(bits > least ? bits : least);
}

// ---- elementary functions ----

// e^x, within 2 units in the last place; 0 below -87.3, and e^88 for x above 88.
INLINE F exp(F x) {
  const F clamped = min(all(88.0f), max(all(-87.33f), x));
  const I n = round_to_int(clamped * 1.44269504f);
  const F nf = to_float(n);
  const F r = (clamped - nf * 0.693359375f) + nf * 2.12194440e-4f;
  F p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const F result = (F)((I)p + (n << 23));
  return x < -87.33f ? F{} : result;
}

// 2^x, within 2 units in the last place; 2^-126 below -126, and 2^127 above 127. The low bits of x + magic are the
// nearest integer.
INLINE F exp2(F x) {
  const F clamped = min(all(127.0f), max(all(-126.0f), x)), magic = all(12582912.0f), shifted = clamped + magic;
  const F r = clamped - (shifted - magic);
  F p = r * 1.535336188e-4f + 1.339887440e-3f;
  p = p * r + 9.618437357e-3f;
  p = p * r + 5.550332471e-2f;
  p = p * r + 2.402264791e-1f;
  p = p * r + 6.931472029e-1f;
  p = p * r + 1.0f;
  return (F)((I)p + ((I)shifted << 23));
}

INLINE F sigmoid(F x) { return 1.0f / (1.0f + exp(-x)); }
INLINE F tanh(F x) { return 2.0f * sigmoid(2.0f * x) - 1.0f; }

// The error function to 1.5e-7 (Abramowitz and Stegun, 7.1.26).
INLINE F erf(F x) {
  const F a = abs(x);
  const F t = 1.0f / (1.0f + 0.3275911f * a);
  F p = t * 1.061405429f - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  const F positive = 1.0f - p * t * exp(-a * a);
  return (F)((I)positive | ((I)x & (int32_t)0x80000000));
}

// Repeats sixteen bytes to fill a vector.
INLINE I repeat16(const uint8_t* table) {
  I v;
  for (int i = 0; i < W / 4; ++i) __builtin_memcpy((char*)&v + 16 * i, table, 16);
  return v;
}

// The offset of a token's four bytes in the bytes of a group, in a tile of m_count tokens.
INLINE int quad_offset(int quad, int m, int m_count) { return quad_offset(quad, m, m_count, kActQuads); }

}  // namespace ingot::cpu::INGOT_ISA
