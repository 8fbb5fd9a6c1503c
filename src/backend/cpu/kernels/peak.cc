// Loops that only load, or only multiply numbers of one type, as fast as this instruction set can.
#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/kernels/tables.h"

namespace ingot::cpu::INGOT_ISA {
namespace {

constexpr int kChains = W == 8 ? 10 : 20;  // independent sums, to cover the latency; sums and operands fit in registers

// Hides a value from the compiler's optimizer.
template <class V>
INLINE void hide(V& v) {
#if defined(__x86_64__)
  asm volatile("" : "+x"(v));
#elif defined(__aarch64__)
  asm volatile("" : "+w"(v));
#endif
}

}  // namespace

double peak_read(const void* data, int64_t n_bytes) {
  const uint8_t* p = (const uint8_t*)data;
  constexpr int64_t kStep = 8 * sizeof(I);
  I sums[8] = {};
  int64_t i = 0;
  for (; i + kStep <= n_bytes; i += kStep)
    for (int j = 0; j < 8; ++j) sums[j] ^= load_as<I>(p + i + j * (int64_t)sizeof(I));
  for (int j = 0; j < 8; ++j) hide(sums[j]);
  return (double)i;
}

double peak_f32(int64_t iterations) {
  F sums[kChains] = {}, a = all(0.999f), b = all(1e-6f);
  hide(a);
  hide(b);
  for (int j = 0; j < kChains; ++j) hide(sums[j]);  // otherwise the compiler would see that all sums are equal
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 32
    for (int j = 0; j < kChains; ++j) sums[j] = sums[j] * a + b;
  }
  for (int j = 0; j < kChains; ++j) hide(sums[j]);
  return (double)iterations * kChains * W * 2;
}

double peak_bf16(int64_t iterations) {
  if constexpr (!kBf16Dot) return peak_f32(iterations);
  F sums[kChains] = {};
  I a = all(0x3F803F80), b = all(0x3F803F80);
  hide(a);
  hide(b);
  for (int j = 0; j < kChains; ++j) hide(sums[j]);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 32
    for (int j = 0; j < kChains; ++j) sums[j] = dot2_bf16(sums[j], a, b);
  }
  for (int j = 0; j < kChains; ++j) hide(sums[j]);
  return (double)iterations * kChains * W * 4;
}

double peak_int16(int64_t iterations) {
  if constexpr (kInt16Tile == 0) return peak_f32(iterations);
  I sums[kChains] = {}, a = all(0x00010002), b = all(0x00010001);
  hide(a);
  hide(b);
  for (int j = 0; j < kChains; ++j) hide(sums[j]);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 32
    for (int j = 0; j < kChains; ++j) {
      sums[j] = dot2_int16(sums[j], a, b);
      hide(a);
    }
  }
  for (int j = 0; j < kChains; ++j) hide(sums[j]);
  return (double)iterations * kChains * W * 4;
}

double peak_int8(int64_t iterations) {
  I sums[kChains] = {}, a = all(0x01020304), b = all(0x01010101);
  hide(a);
  hide(b);
  for (int j = 0; j < kChains; ++j) hide(sums[j]);  // otherwise the compiler would see that all sums are equal
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 32
    for (int j = 0; j < kChains; ++j) {
      sums[j] = dot4_small(sums[j], a, b);
      hide(a);  // otherwise, if products are separate instructions, the compiler would see that all are equal
    }
  }
  for (int j = 0; j < kChains; ++j) hide(sums[j]);
  return (double)iterations * kChains * W * 8;
}

}  // namespace ingot::cpu::INGOT_ISA
