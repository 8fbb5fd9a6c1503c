// The functions of vectors of 32 bytes, in the instructions of AVX2 that AVX-512 has too.
#pragma once
#include "backend/cpu/kernels/isa/plain.h"

namespace ingot::cpu::INGOT_ISA {

// Byte i is negative if bit i is set, else positive: 128 minus the own bit is added to the bit. For bit 7, 1 is added.
INLINE Bytes signs_of(uint32_t bits) {
  return (spread(bits) & (Bytes)(Points{} + kOwnBits)) + (Bytes)(Points{} + 0x01406070787C7E7Fu);
}
// Turns the sign of the numbers whose byte of `signs` is negative; the other bytes are positive.
INLINE Bytes with_signs_of(Bytes numbers, Bytes signs) {
  return (Bytes)_mm256_sign_epi8((__m256i)numbers, (__m256i)signs);
}

// The products of codes below 128 and signed numbers are added in pairs; pairs are multiplied by their factors, and two
// of them are added.
INLINE Sums dot_scaled(Bytes codes, Bytes numbers, Words factors) {
  const __m256i pairs = _mm256_maddubs_epi16((__m256i)codes, (__m256i)numbers);
  return (Sums)_mm256_madd_epi16(pairs, (__m256i)factors);
}

// The words of the first half have byte 2 * i of `bytes`, those of the second half byte 2 * i + 1.
INLINE Words pair_of_bytes(const uint8_t* bytes, int i) {
  const __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)bytes));
  const Words first = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  const Words indices = first + (uint16_t)(0x8000 + 2 * i);  // the index 0x80 means 0
  return (Words)_mm256_shuffle_epi8(both, (__m256i)indices);
}

INLINE Words twice_in_lanes(uint32_t v) { return (Words)(Groups{} + v); }

// Four words in order. From a list, GCC makes two pairs and joins them, with one more instruction.
INLINE Half four_words(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const __m128i two = _mm_insert_epi32(_mm_cvtsi32_si128((int)a), (int)b, 1);
  return (Half)_mm_insert_epi32(_mm_insert_epi32(two, (int)c, 2), (int)d, 3);
}

INLINE Words widen(Half bytes) { return (Words)_mm256_cvtepu8_epi16((__m128i)bytes); }
INLINE Words high_bytes(Words bytes, Words factors) {
  return (Words)_mm256_mulhi_epu16((__m256i)bytes, (__m256i)(factors << 8));
}

}  // namespace ingot::cpu::INGOT_ISA
