// What AVX2 with FMA and F16C has with and without AVX-VNNI.
#pragma once
#include <immintrin.h>

namespace ingot::cpu::INGOT_ISA {
constexpr int W = 8;
}
#include "backend/cpu/kernels/isa/avx2_words.h"
#include "backend/cpu/kernels/isa/one_group.h"

namespace ingot::cpu::INGOT_ISA {

constexpr int kQuantTile = 4, kDenseTile = 6, kInt16Tile = 6;  // see tables.h
constexpr int kActQuads = 1;
constexpr bool kBf16Dot = false, kBf16Blocks = false, kMultipliesByLane = false;

using plain::dot2_bf16;
using plain::largest;
using plain::sum;

INLINE F load_f16(const uint16_t* p) { return (F)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }
INLINE void store_f16(uint16_t* p, F v) {
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINE H load_widened(const uint8_t* p) { return (H)_mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i*)p)); }
INLINE I load_bytes(const uint8_t* p) { return (I)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p)); }
INLINE void store_s8(int8_t* p, I v) {
  const __m256i words = _mm256_packs_epi32((__m256i)v, (__m256i)v);  // the low halves of both 128-bit lanes
  const __m256i bytes = _mm256_packs_epi16(words, words);
  const __m128i joined = _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
  _mm_storel_epi64((__m128i*)p, joined);
}
INLINE I lookup16(I table, I codes) { return (I)_mm256_shuffle_epi8((__m256i)table, (__m256i)codes); }

}  // namespace ingot::cpu::INGOT_ISA
