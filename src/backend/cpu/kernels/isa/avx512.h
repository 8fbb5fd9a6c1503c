// AVX-512 with VNNI, and with BF16 if the compiler may use it.
#pragma once
#include <immintrin.h>

namespace ingot::cpu::INGOT_ISA {
constexpr int W = 16;
}
#include "backend/cpu/kernels/isa/avx2_words.h"

namespace ingot::cpu::INGOT_ISA {

#define INGOT_INT16_DOT  // products of 16-bit integers are faster than those of f32
constexpr int kQuantTile = 6, kDenseTile = 12, kInt16Tile = 8;  // see tables.h
constexpr int kActQuads = 1;
constexpr bool kSignedCodes = false, kAddsPairs = false, kMultipliesByLane = false;

INLINE float sum(F v) { return _mm512_reduce_add_ps((__m512)v); }
INLINE int32_t sum(I v) { return _mm512_reduce_add_epi32((__m512i)v); }
INLINE float largest(F v) { return _mm512_reduce_max_ps((__m512)v); }

INLINE F load_f16(const uint16_t* p) { return (F)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
INLINE void store_f16(uint16_t* p, F v) {
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINE H load_widened(const uint8_t* p) { return (H)_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i*)p)); }
INLINE I load_bytes(const uint8_t* p) { return (I)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)); }
INLINE void store_s8(int8_t* p, I v) { _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8((__m512i)v)); }

#if defined(__AVX512BF16__)
constexpr bool kBf16Dot = true;
#define INGOT_BF16_BLOCKS  // cores with these instructions may have a matrix unit for bf16
INLINE void store_bf16(uint8_t* p, F low, F high) {
  _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
}
// Rounds the even and the odd numbers of 32 to bf16, and stores them in order.
INLINE void store_pairs(uint32_t* p, F even, F odd) {
  alignas(64) static constexpr uint16_t kOrder[2 * W] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                         8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even);
  _mm512_storeu_si512(p, _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), both));
}
INLINE F dot2_bf16(F acc, I a, I b) {
#if defined(__clang__) && __clang_major__ == 16  // it crashes when it compiles a broadcast of bf16
  asm("" : "+v"(b));
#endif
  return (F)_mm512_dpbf16_ps((__m512)acc, (__m512bh)(__m512i)a, (__m512bh)(__m512i)b);
}
#else
constexpr bool kBf16Dot = false;
using plain::dot2_bf16;
#endif
INLINE I dot2_int16(I acc, I a, I b) { return (I)_mm512_dpwssd_epi32((__m512i)acc, (__m512i)a, (__m512i)b); }
INLINE Sums dot_words(Sums acc, Words a, Words b) {
  return (Sums)_mm256_dpwssd_epi32((__m256i)acc, (__m256i)a, (__m256i)b);
}
INLINE I dot4(I acc, I codes, I a) { return (I)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)codes, (__m512i)a); }
INLINE I dot4_small(I acc, I codes, I a) { return dot4(acc, codes, a); }
INLINE I lookup16(I table, I codes) { return (I)_mm512_shuffle_epi8((__m512i)table, (__m512i)codes); }

}  // namespace ingot::cpu::INGOT_ISA
