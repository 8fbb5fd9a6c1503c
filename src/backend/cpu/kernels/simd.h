// The vectors in which the kernels are written: the compiler's own vector types, as wide as the instruction set for
// which this file is compiled, and a few functions for single instructions that C++ cannot express.
//
// Every kernel source is compiled once for each instruction set (cmake/cpu_kernels.cmake), in the namespace INGOT_ISA.
// This header and the kernel sources must not define `inline` symbols that other code also has: the linker would keep
// one copy, perhaps the one with instructions that the machine lacks. So functions are static, and no header with
// inline bodies is included.
#pragma once
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define INLINE static inline __attribute__((always_inline))

namespace ingot::cpu::INGOT_ISA {

#if defined(__AVX512F__)
constexpr int W = 16;  // floats in a vector
#elif defined(__AVX2__)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif

typedef float F __attribute__((vector_size(4 * W)));
typedef int32_t I __attribute__((vector_size(4 * W)));
typedef uint32_t U __attribute__((vector_size(4 * W)));

template <class V>
INLINE V load_as(const void* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof(V));
  return v;
}
INLINE F load(const float* p) { return load_as<F>(p); }
INLINE void store(float* p, F v) { __builtin_memcpy(p, &v, sizeof(v)); }
INLINE F all(float x) { return x - F{}; }  // x - 0 is x even for -0, so the subtraction costs nothing
INLINE I all(int32_t x) { return x - I{}; }
INLINE F to_float(I v) { return __builtin_convertvector(v, F); }
INLINE F min(F a, F b) { return a < b ? a : b; }  // b if either is NaN
INLINE F max(F a, F b) { return a > b ? a : b; }
INLINE F abs(F v) { return (F)((I)v & 0x7FFFFFFF); }

// Nearest integer, ties to even, for |v| < 2^22.
INLINE I round_to_int(F v) {
  const F magic = all(12582912.0f);
  return (I)(v + magic) - (I)magic;
}

INLINE float sum(F v) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps((__m512)v);
#else
  float lanes[W], total = 0;
  store(lanes, v);
  for (int i = 0; i < W; ++i) total += lanes[i];
  return total;
#endif
}

INLINE float largest(F v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps((__m512)v);
#else
  float lanes[W];
  store(lanes, v);
  float top = lanes[0];
  for (int i = 1; i < W; ++i) top = lanes[i] > top ? lanes[i] : top;
  return top;
#endif
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

INLINE int32_t sum(I v) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_epi32((__m512i)v);
#else
  int32_t total = 0;
  for (int i = 0; i < W; ++i) total += v[i];
  return total;
#endif
}

// ---- prefetching ----

// The hardware's prefetcher reads a single dense stream at nine tenths of the bandwidth, but the several streams of a
// panel (scales, codes) at only half. Tiles of few tokens spend their time on reading weights, so they prefetch the
// lines themselves. Panels are stored one after another, so the prefetch runs on into the next panel.
constexpr int kPrefetchTokens = 4;
constexpr int kPrefetchAhead = 6144;  // bytes; values from 2 to 8 KiB differ little

// Into the first-level cache (near) or the second-level cache.
template <int n_bytes, bool near = false>
INLINE void prefetch(const uint8_t* p) {
#pragma GCC unroll 32
  for (int i = 0; i < (n_bytes + 63) / 64; ++i) __builtin_prefetch(p + i * 64, 0, near ? 3 : 2);
}

// ---- 16-bit floats ----

INLINE F load_f16(const uint16_t* p) {
#if defined(__AVX512F__)
  return (F)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
#elif defined(__AVX2__)
  return (F)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
#elif defined(__aarch64__)
  return (F)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
#else
  typedef uint16_t H __attribute__((vector_size(2 * W)));
  const U half = __builtin_convertvector(load_as<H>(p), U);
  const U magnitude = (half & 0x7FFFu) << 13;
  const U scaled = (U)((F)magnitude * 0x1p112f);  // moves the exponent bias from 15 to 127, subnormals included
  const U special = magnitude | 0x7F800000u;
  return (F)((half & 0x8000u) << 16 | ((I)magnitude >= 0x0F800000 ? special : scaled));
#endif
}

INLINE void store_f16(uint16_t* p, F v) {
#if defined(__AVX512F__)
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__AVX2__)
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__aarch64__)
  vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)v)));
#else
  // As f16_from_float (base/half.h), lane by lane of a vector.
  typedef uint16_t H __attribute__((vector_size(2 * W)));
  const U bits = (U)v, magnitude = bits & 0x7FFFFFFFu, sign = (bits >> 16) & 0x8000u;
  const U normal = (magnitude + 0xFFFu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  const U subnormal = (U)((F)magnitude + 0.5f) - 0x3F000000u;
  U half = (I)magnitude < 0x38800000 ? subnormal : normal;
  half = (I)magnitude >= 0x477FF000 ? U{} + 0x7C00u : half;
  half = (I)magnitude > 0x7F800000 ? U{} + 0x7E00u : half;
  const H narrow = __builtin_convertvector(sign | half, H);
  __builtin_memcpy(p, &narrow, sizeof(narrow));
#endif
}

INLINE F load_bf16(const uint16_t* p) {
  typedef uint16_t H __attribute__((vector_size(2 * W)));
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
// Interleaves the first halves of a and b (from = 0), or the second halves (from = W / 2): a0 b0 a1 b1 ...
template <int from, int... i>
INLINE F zip(F a, F b, Lanes<i...>) {
  return __builtin_shufflevector(a, b, (from + i / 2 + i % 2 * W)...);
}
// Transposes rows and columns: each round interleaves rows that are W / 2 apart.
INLINE void transpose(F (&rows)[W]) {
#pragma GCC unroll 4
  for (int round = 1; round < W; round *= 2) {
    F zipped[W];
#pragma GCC unroll 8
    for (int i = 0; i < W / 2; ++i) {
      zipped[2 * i] = zip<0>(rows[i], rows[i + W / 2], LanesOf<W>());
      zipped[2 * i + 1] = zip<W / 2>(rows[i], rows[i + W / 2], LanesOf<W>());
    }
#pragma GCC unroll 16
    for (int i = 0; i < W; ++i) rows[i] = zipped[i];
  }
}

typedef uint16_t H __attribute__((vector_size(2 * W)));

INLINE H load_widened(const uint8_t* p) {
#if defined(__AVX512F__)
  return (H)_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i*)p));
#elif defined(__AVX2__)
  return (H)_mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i*)p));
#else
  typedef uint8_t B __attribute__((vector_size(W)));
  return __builtin_convertvector(load_as<B>(p), H);
#endif
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

// (GCC 12 splits a __builtin_convertvector from bytes into single lanes.)
INLINE I load_bytes(const uint8_t* p) {  // signed
#if defined(__AVX512F__)
  return (I)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p));
#elif defined(__AVX2__)
  return (I)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p));
#elif defined(__aarch64__)
  int8_t eight[8] = {};
  __builtin_memcpy(eight, p, W);
  return (I)vmovl_s16(vget_low_s16(vmovl_s8(vld1_s8(eight))));
#else
  typedef int8_t B __attribute__((vector_size(W)));
  return __builtin_convertvector(load_as<B>(p), I);
#endif
}
INLINE F load_s8(const int8_t* p) { return to_float(load_bytes((const uint8_t*)p)); }

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

// ---- dot products ----

#if defined(__AVX2__)
// Without this, GCC would compute all products before adding them, and the products do not fit in registers.
INLINE I here(I v) {
  asm volatile("" : "+x"(v));
  return v;
}
#endif

// Adds to each lane the dot product of two pairs of bf16.
#if defined(__AVX512BF16__)
#define INGOT_BF16_DOT
INLINE F dot2_bf16(F acc, I a, I b) {
  return (F)_mm512_dpbf16_ps((__m512)acc, (__m512bh)(__m512i)a, (__m512bh)(__m512i)b);
}
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define INGOT_BF16_DOT
INLINE F dot2_bf16(F acc, I a, I b) {
  return (F)vbfdotq_f32((float32x4_t)acc, (bfloat16x8_t)a, (bfloat16x8_t)b);
}
#endif

// AVX-VNNI has the 256-bit instructions of AVX-512 VNNI in a shorter encoding. The arithmetic is the same, so a machine
// with AVX-512 can test these kernels in its own encoding (INGOT_TEST_AVX_VNNI in CMake).
#if defined(INGOT_AVX_VNNI)
#if defined(INGOT_TEST_AVX_VNNI)
#define INGOT_VNNI(name) "vp" name " %2, %1, %0"
#else
#define INGOT_VNNI(name) "%{vex%} vp" name " %2, %1, %0"
#endif
#endif

// Adds to each lane the dot product of two pairs of 16-bit integers.
#if defined(__AVX512VNNI__)
#define INGOT_INT16_DOT
INLINE I dot2_int16(I acc, I a, I b) { return (I)_mm512_dpwssd_epi32((__m512i)acc, (__m512i)a, (__m512i)b); }
#elif defined(INGOT_AVX_VNNI)
#define INGOT_INT16_DOT
INLINE I dot2_int16(I acc, I a, I b) {
  asm(INGOT_VNNI("dpwssd") : "+x"(acc) : "x"(a), "x"(b));
  return acc;
}
#elif defined(__AVX2__)
#define INGOT_INT16_DOT
INLINE I dot2_int16(I acc, I a, I b) { return here(acc + (I)_mm256_madd_epi16((__m256i)a, (__m256i)b)); }
#endif

// Adds to each lane the dot product of its four codes with the four signed bytes of `a`. Codes are unsigned if the
// instruction needs unsigned codes (kSignedCodes false), otherwise signed. Small codes (under 128) work in both cases.
#if defined(__AVX2__) && !defined(__AVX512VNNI__) && !defined(INGOT_AVX_VNNI)
constexpr bool kAddsPairs = true;  // pairs_of, add_pairs and sums_of_pairs exist
#else
constexpr bool kAddsPairs = false;
#endif
#if defined(__AVX512VNNI__)
constexpr bool kSignedCodes = false;
INLINE I dot4(I acc, I codes, I a) { return (I)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)codes, (__m512i)a); }
INLINE I dot4_small(I acc, I codes, I a) { return dot4(acc, codes, a); }
#elif defined(INGOT_AVX_VNNI)
constexpr bool kSignedCodes = false;
INLINE I dot4(I acc, I codes, I a) {
  asm(INGOT_VNNI("dpbusd") : "+x"(acc) : "x"(codes), "x"(a));
  return acc;
}
INLINE I dot4_small(I acc, I codes, I a) { return dot4(acc, codes, a); }
#else
constexpr bool kSignedCodes = true;
#if defined(__AVX2__)
// Sums of two products in 16-bit lanes, for codes below 128; adding some of them first takes fewer instructions.
INLINE I pairs_of(I codes, I a) { return (I)_mm256_maddubs_epi16((__m256i)codes, (__m256i)a); }
INLINE I add_pairs(I a, I b) { return here((I)_mm256_add_epi16((__m256i)a, (__m256i)b)); }
INLINE I sums_of_pairs(I pairs) { return (I)_mm256_madd_epi16((__m256i)pairs, _mm256_set1_epi16(1)); }
INLINE I dot4_small(I acc, I codes, I a) { return here(acc + sums_of_pairs(pairs_of(codes, a))); }
INLINE I dot4(I acc, I codes, I a) {  // |code| <= 128 and |a| <= 127, so pairs stay within 16 bits here too
  return dot4_small(acc, (I)_mm256_abs_epi8((__m256i)codes), (I)_mm256_sign_epi8((__m256i)a, (__m256i)codes));
}
#elif defined(__ARM_FEATURE_DOTPROD)
INLINE I dot4(I acc, I codes, I a) { return (I)vdotq_s32((int32x4_t)acc, (int8x16_t)codes, (int8x16_t)a); }
INLINE I dot4_small(I acc, I codes, I a) { return dot4(acc, codes, a); }
#else
INLINE I dot4(I acc, I codes,
              I a) {  // in 16 bits, which every machine can multiply: two products of at most 128 * 127 fit
  typedef int16_t S __attribute__((vector_size(4 * W)));
  const S c = (S)codes, x = (S)a;
  const S pairs = (c << 8 >> 8) * (x << 8 >> 8) + (c >> 8) * (x >> 8);
  return acc + ((I)pairs << 16 >> 16) + ((I)pairs >> 16);
}
INLINE I dot4_small(I acc, I codes, I a) { return dot4(acc, codes, a); }
#endif
#endif

// Repeats sixteen bytes to fill a vector.
INLINE I repeat16(const uint8_t* table) {
  I v;
  for (int i = 0; i < W / 4; ++i) __builtin_memcpy((char*)&v + 16 * i, table, 16);
  return v;
}

// table[code] for each byte of `codes`; codes are below 16, and `table` is a result of repeat16.
INLINE I lookup16(I table, I codes) {
#if defined(__AVX512BW__)
  return (I)_mm512_shuffle_epi8((__m512i)table, (__m512i)codes);
#elif defined(__AVX2__)
  return (I)_mm256_shuffle_epi8((__m256i)table, (__m256i)codes);
#elif defined(__aarch64__)
  return (I)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)codes);
#else
  uint8_t from[16], to[4 * W];
  __builtin_memcpy(from, &table, 16);
  __builtin_memcpy(to, &codes, sizeof(to));
  for (uint8_t& byte : to) byte = from[byte];
  return load_as<I>(to);
#endif
}

}  // namespace ingot::cpu::INGOT_ISA
