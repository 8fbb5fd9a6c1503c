// What AVX-512 with VNNI has with and without BF16 and VBMI.
#pragma once
#include <immintrin.h>

namespace ingot::cpu::INGOT_ISA {
constexpr int W = 16;
}
#include "backend/cpu/kernels/isa/avx2_words.h"

namespace ingot::cpu::INGOT_ISA {

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

INLINE I dot2_int16(I acc, I a, I b) { return (I)_mm512_dpwssd_epi32((__m512i)acc, (__m512i)a, (__m512i)b); }
INLINE Sums dot_words(Sums acc, Words a, Words b) {
  return (Sums)_mm256_dpwssd_epi32((__m256i)acc, (__m256i)a, (__m256i)b);
}
INLINE I dot4(I acc, I codes, I a) { return (I)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)codes, (__m512i)a); }
INLINE I dot4_small(I acc, I codes, I a) { return dot4(acc, codes, a); }
INLINE I lookup16(I table, I codes) { return (I)_mm512_shuffle_epi8((__m512i)table, (__m512i)codes); }

}  // namespace ingot::cpu::INGOT_ISA
#include "backend/cpu/kernels/isa/two_groups.h"
