// AVX-512 with VNNI, BF16 and VBMI.
#pragma once
#include "backend/cpu/kernels/isa/avx512_base.h"

namespace ingot::cpu::INGOT_ISA {

constexpr bool kBf16Dot = true, kLooksUpBytes = true;
constexpr bool kBf16Blocks = true;  // cores with these instructions may have a matrix unit for bf16

INLINE void store_bf16(uint8_t* p, F low, F high) {
  _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
}
// Rounds the even and the odd numbers of 32 to bf16, ties away from zero, and stores them in order. (The instruction
// for two vectors would leave the order to be restored, which takes longer.) A NaN must be kNan.
constexpr int32_t kNan = 0x7FC00000;
INLINE void store_pairs(uint32_t* p, F even, F odd) {
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i low = _mm512_srli_epi32(_mm512_add_epi32((__m512i)even, half), 16);
  const __m512i high = _mm512_add_epi32((__m512i)odd, half);
  _mm512_storeu_si512(p, _mm512_mask_mov_epi16(low, 0xAAAAAAAA, high));
}
INLINE F with_one_nan(F v) {
  return (F)_mm512_mask_mov_epi32((__m512i)v, _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q),
                                  _mm512_set1_epi32(kNan));
}
// A byte of each lane below 128, plus 128, without a conversion.
template <int byte>
INLINE F code_plus_128(I codes) {
  constexpr int up = (2 - byte) * 8;
  const I at_16 = up < 0 ? (I)((U)codes >> -up) : codes << up;
  const __m512i kept = _mm512_set1_epi32(0x7F0000), float_128 = _mm512_set1_epi32(0x43000000);
  return (F)_mm512_ternarylogic_epi32((__m512i)at_16, kept, float_128, 0xEA /* (a & b) | c */);
}
INLINE F dot2_bf16(F acc, I a, I b) {
#if defined(__clang__) && __clang_major__ == 16  // it crashes when it compiles a broadcast of bf16
  asm("" : "+v"(b));
#endif
  return (F)_mm512_dpbf16_ps((__m512)acc, (__m512bh)(__m512i)a, (__m512bh)(__m512i)b);
}

// ---- the levels of a block (file_block.h) ----

// table[index + 256 * ninth bit] for 64 indices. The table has 256 or 512 bytes.
template <int n>
INLINE __m512i bytes_of(const uint8_t (&table)[n], __m512i indices, __mmask64 ninth) {
  const __mmask64 eighth = _mm512_movepi8_mask(indices);
  __m512i found[n / 256];
  for (int i = 0; i < n / 256; ++i) {
    __m512i halves[2];
    for (int half = 0; half < 2; ++half) {
      const uint8_t* from = table + 256 * i + 128 * half;
      halves[half] = _mm512_permutex2var_epi8(_mm512_loadu_si512(from), indices, _mm512_loadu_si512(from + 64));
    }
    found[i] = _mm512_mask_mov_epi8(halves[0], eighth, halves[1]);
  }
  return n == 256 ? found[0] : _mm512_mask_mov_epi8(found[0], ninth, found[n / 256 - 1]);
}

// The levels of 64 points of four levels each: points [4][16] in order. planes[i] has level i of each point.
template <int n>
INLINE void look_up(const uint8_t (&planes)[4][n], const uint8_t* entries, const uint64_t* ninths,
                    Numbers (&levels)[4]) {
  // Unpacking joins points 16 i to 16 i + 3 of four quarters, so quarters and words are exchanged first.
  const I order = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  const auto reordered = [&](__m512i v) { return _mm512_permutexvar_epi32((__m512i)order, v); };
  const __m512i indices = reordered(_mm512_loadu_si512(entries));
  const __mmask64 ninth = n == 256 ? 0 : _mm512_movepi8_mask(reordered(_mm512_movm_epi8(*ninths)));
  __m512i plane[4];
  for (int i = 0; i < 4; ++i) plane[i] = bytes_of(planes[i], indices, ninth);
  const __m512i low01 = _mm512_unpacklo_epi8(plane[0], plane[1]), high01 = _mm512_unpackhi_epi8(plane[0], plane[1]);
  const __m512i low23 = _mm512_unpacklo_epi8(plane[2], plane[3]), high23 = _mm512_unpackhi_epi8(plane[2], plane[3]);
  levels[0] = (Numbers)_mm512_unpacklo_epi16(low01, low23);
  levels[1] = (Numbers)_mm512_unpackhi_epi16(low01, low23);
  levels[2] = (Numbers)_mm512_unpacklo_epi16(high01, high23);
  levels[3] = (Numbers)_mm512_unpackhi_epi16(high01, high23);
}

// The low bytes are table[entry] of 32 entries below n, each of 16 bits.
template <int n>
INLINE __m512i low_bytes_of(const uint8_t* table, __m512i entries) {
  if constexpr (n == 128) {
    return _mm512_permutex2var_epi8(_mm512_loadu_si512(table), entries, _mm512_loadu_si512(table + 64));
  } else {
    const __mmask32 second = _mm512_test_epi16_mask(entries, _mm512_set1_epi16(n / 2));
    return _mm512_mask_mov_epi16(low_bytes_of<n / 2>(table, entries), second,
                                 low_bytes_of<n / 2>(table + n / 2, entries));
  }
}

// The levels of 32 points of eight levels each: points [4][8] in order. The planes have the low and the high byte of a
// point of eight times two bits. `codebook` has the levels 0, 1, 2 and 3, again and again.
template <int n>
INLINE void look_up(const uint8_t (&planes)[2][n], const uint8_t (&codebook)[64], __m512i entries,
                    Numbers (&levels)[4]) {
  const __m512i low = low_bytes_of<n>(planes[0], entries), high = low_bytes_of<n>(planes[1], entries);
  const __m512i table = _mm512_loadu_si512(codebook);
  // Both bytes of a point in a word of 64 bits, then two bits in each byte; the lookup ignores the bits above.
  const __m512i eight = _mm512_set_epi64(0x4E0E, 0x4C0C, 0x4A0A, 0x4808, 0x4606, 0x4404, 0x4202, 0x4000);
  const __m512i shifts = _mm512_set1_epi64(0x0E0C0A0806040200);
  for (int i = 0; i < 4; ++i) {
    const __m512i points = _mm512_permutex2var_epi8(low, _mm512_add_epi16(eight, _mm512_set1_epi16(0x1010 * i)), high);
    levels[i] = (Numbers)_mm512_permutexvar_epi8(_mm512_multishift_epi64_epi8(shifts, points), table);
  }
}
template <int n>
INLINE void look_up(const uint8_t (&planes)[2][n], const uint8_t (&codebook)[64], const uint16_t* entries,
                    Numbers (&levels)[4]) {
  look_up(planes, codebook, _mm512_loadu_si512(entries), levels);
}
// Of 16 words, words 0, 2, 4 and so on have four entries each.
template <int n>
INLINE void look_up_bytes(const uint8_t (&planes)[2][n], const uint8_t (&codebook)[64], const uint8_t* words,
                          Numbers (&levels)[4]) {
  look_up(planes, codebook, _mm512_cvtepu8_epi16(_mm512_cvtepi64_epi32(_mm512_loadu_si512(words))), levels);
}

}  // namespace ingot::cpu::INGOT_ISA
