// The vector types, and plain C++ bodies of the functions for which an instruction set may have instructions. The
// header of an instruction set defines W (floats in a vector) and includes this file. Then it defines the functions for
// which it has instructions, and takes the others from here (`using plain::sum`).
#pragma once
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

namespace ingot::cpu::INGOT_ISA {

typedef float F __attribute__((vector_size(4 * W)));
typedef int32_t I __attribute__((vector_size(4 * W)));
typedef uint32_t U __attribute__((vector_size(4 * W)));
typedef uint16_t H __attribute__((vector_size(2 * W)));

// The same size in every instruction set.
typedef uint8_t Half __attribute__((vector_size(16)));
typedef uint8_t Bytes __attribute__((vector_size(32)));
typedef uint16_t Words __attribute__((vector_size(32)));
typedef int32_t Sums __attribute__((vector_size(32)));
typedef float Floats __attribute__((vector_size(32)));
typedef uint32_t Groups __attribute__((vector_size(32)));  // a number for each group of a block
typedef uint64_t Points __attribute__((vector_size(32)));  // four points of eight levels

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

// The offset of a token's four bytes in the bytes of a group, in a tile of m_count tokens. `together` quads of a token
// are neighbours.
INLINE int quad_offset(int quad, int m, int m_count, int together) {
  return 4 * ((quad / together * m_count + m) * together + quad % together);
}

// Byte i / 8 of `word` in byte i.
INLINE Bytes spread(uint32_t word) {
  const Bytes all = (Bytes)(Groups{} + word);
  // Within each half, so that AVX2 needs one instruction; the second half has the same bytes.
  return __builtin_shufflevector(all, all, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,  //
                                 18, 18, 18, 18, 18, 18, 18, 18, 19, 19, 19, 19, 19, 19, 19, 19);
}

constexpr uint64_t kOwnBits = 0x8040201008040201;  // bit i of byte i

// 0xFF in byte i if bit i is set.
INLINE Bytes mask_of(uint32_t bits) {
  const Bytes own = (Bytes)(Points{} + kOwnBits);
  return (Bytes)((spread(bits) & own) == own);
}

namespace plain {

INLINE float sum(F v) {
  float lanes[W], total = 0;
  store(lanes, v);
  for (int i = 0; i < W; ++i) total += lanes[i];
  return total;
}

INLINE int32_t sum(I v) {
  int32_t total = 0;
  for (int i = 0; i < W; ++i) total += v[i];
  return total;
}

INLINE float largest(F v) {
  float lanes[W];
  store(lanes, v);
  float top = lanes[0];
  for (int i = 1; i < W; ++i) top = lanes[i] > top ? lanes[i] : top;
  return top;
}

INLINE F load_f16(const uint16_t* p) {
  const U half = __builtin_convertvector(load_as<H>(p), U);
  const U magnitude = (half & 0x7FFFu) << 13;
  const U scaled = (U)((F)magnitude * 0x1p112f);  // moves the exponent bias from 15 to 127, subnormals included
  const U special = magnitude | 0x7F800000u;
  return (F)((half & 0x8000u) << 16 | ((I)magnitude >= 0x0F800000 ? special : scaled));
}

// As f16_from_float (base/half.h), for a vector.
INLINE void store_f16(uint16_t* p, F v) {
  const U bits = (U)v, magnitude = bits & 0x7FFFFFFFu, sign = (bits >> 16) & 0x8000u;
  const U normal = (magnitude + 0xFFFu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  const U subnormal = (U)((F)magnitude + 0.5f) - 0x3F000000u;
  U half = (I)magnitude < 0x38800000 ? subnormal : normal;
  half = (I)magnitude >= 0x477FF000 ? U{} + 0x7C00u : half;
  half = (I)magnitude > 0x7F800000 ? U{} + 0x7E00u : half;
  const H lanes = __builtin_convertvector(sign | half, H);
  __builtin_memcpy(p, &lanes, sizeof(lanes));
}

INLINE H load_widened(const uint8_t* p) {
  typedef uint8_t B __attribute__((vector_size(W)));
  return __builtin_convertvector(load_as<B>(p), H);
}

INLINE I load_bytes(const uint8_t* p) {  // signed
  typedef int8_t B __attribute__((vector_size(W)));
  return __builtin_convertvector(load_as<B>(p), I);
}

INLINE void store_s8(int8_t* p, I v) {
  for (int i = 0; i < W; ++i) p[i] = (int8_t)v[i];
}

INLINE F dot2_bf16(F acc, I a, I b) {
  return acc + (F)(a << 16) * (F)(b << 16) + (F)(a & (int32_t)0xFFFF0000) * (F)(b & (int32_t)0xFFFF0000);
}

INLINE I dot2_int16(I acc, I a, I b) { return acc + (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16); }

// Multiplies in 16 bits, which every machine can do: two products of at most 128 * 127 fit.
INLINE I dot4(I acc, I codes, I a) {
  typedef int16_t S __attribute__((vector_size(4 * W)));
  const S c = (S)codes, x = (S)a;
  const S pairs = (c << 8 >> 8) * (x << 8 >> 8) + (c >> 8) * (x >> 8);
  return acc + ((I)pairs << 16 >> 16) + ((I)pairs >> 16);
}
INLINE I dot4_small(I acc, I codes, I a) { return dot4(acc, codes, a); }

INLINE Words widen(Half bytes) { return __builtin_convertvector(bytes, Words); }
INLINE Words high_bytes(Words bytes, Words factors) { return bytes * factors >> 8; }
INLINE Sums dot_words(Sums acc, Words a, Words b) {
  const Sums x = (Sums)a, y = (Sums)b;
  return acc + (x << 16 >> 16) * (y << 16 >> 16) + (x >> 16) * (y >> 16);
}

INLINE I lookup16(I table, I codes) {
  uint8_t from[16], to[4 * W];
  __builtin_memcpy(from, &table, 16);
  __builtin_memcpy(to, &codes, sizeof(to));
  for (uint8_t& byte : to) byte = from[byte];
  return load_as<I>(to);
}

}  // namespace plain

}  // namespace ingot::cpu::INGOT_ISA
