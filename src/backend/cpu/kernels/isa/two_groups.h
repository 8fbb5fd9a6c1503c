// The functions of one_group.h, for two groups of 32 numbers at once: a vector of AVX-512 holds both.
#pragma once
#include "backend/cpu/kernels/isa/plain.h"

namespace ingot::cpu::INGOT_ISA {

constexpr int kAtOnce = 2;
typedef uint8_t Numbers __attribute__((vector_size(64)));
typedef uint16_t TwoWords __attribute__((vector_size(64)));
typedef F Totals;

INLINE Numbers two_of(Bytes first, Bytes second) {
  return (Numbers)_mm512_inserti64x4(_mm512_castsi256_si512((__m256i)first), (__m256i)second, 1);
}

// Negates the numbers whose bit is set.
INLINE Numbers with_signs_of(Numbers numbers, uint64_t bits) {
  return (Numbers)_mm512_mask_sub_epi8((__m512i)numbers, bits, __m512i{}, (__m512i)numbers);
}
template <class Row>
INLINE uint64_t signs_at(const Row& row, int g) {
  return load_as<uint64_t>(row.marks + g);
}

INLINE I dot_scaled(Numbers codes, Numbers numbers, TwoWords factors) {
  const __m512i pairs = _mm512_maddubs_epi16((__m512i)codes, (__m512i)numbers);
  return (I)_mm512_madd_epi16(pairs, (__m512i)factors);
}

// Of eight words: word g in the first half of the lanes, word g + 1 in the second half.
INLINE U in_halves(const void* words, int g) {
  const I first = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  const __m512i eight = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i*)words));
  return (U)_mm512_permutexvar_epi32((__m512i)(first + g), eight);
}
// Of 16 bytes: bytes 2g to 2g + 3 as words, each in a quarter of the lanes.
INLINE TwoWords in_quarters(const uint8_t* bytes, int g) {
  const __m512i all = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)bytes));
  const I quarter = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
  const I indices = (quarter + 2 * g) * 0x00010001 + (int32_t)0x80008000;  // the index 0x80 means 0
  return (TwoWords)_mm512_shuffle_epi8(all, (__m512i)indices);
}

template <int parts, class Row>
INLINE TwoWords factors_of(const Row& row, int g) {
  return parts == 1 ? (TwoWords)in_halves(row.multiples, g) : in_quarters(row.part_multiples, g);
}
INLINE F scales_at(const float* scales, int g) { return (F)in_halves(scales, g); }

INLINE void halves_of(const Totals (&totals)[1], Floats (&halves)[2]) {
  halves[0] = (Floats)_mm512_castps512_ps256((__m512)totals[0]);
  halves[1] = (Floats)_mm512_extractf32x8_ps((__m512)totals[0], 1);
}

}  // namespace ingot::cpu::INGOT_ISA
