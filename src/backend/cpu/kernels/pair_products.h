// Products of codes and activations in 16 bits, for instruction sets that multiply bytes into 16-bit sums of two
// products (AVX2). The sums of several quads are added in 16 bits, before pairs of them are added in 32 bits.
#pragma once
#include "backend/cpu/kernels/simd.h"

namespace ingot::cpu::INGOT_ISA {

// How many of n_quads have sums that fit in 16 bits; 1: quads are not added in 16 bits. Activations are at most 127.
static constexpr int quads_in_pairs(int largest_code, int n_quads) {
  int n = kAddsPairs ? n_quads : 1;
  while (n > 1 && n * 2 * 127 * largest_code > 32767) n /= 2;
  return n;
}

// Adds to sums [M tokens, RV vectors of rows] the products of quads [first, first + n_quads), n of them in 16 bits.
// `codes(quad, v)` returns four codes of each row of vector v; `a` has the activations, [quad, M, 4].
template <int n, int M, int RV, class Codes>
INLINE void multiply_in_pairs(I (&sums)[M][RV], const uint8_t* a, int first, int n_quads, Codes&& codes) {
#pragma GCC unroll 8
  for (int begin = first; begin < first + n_quads; begin += n) {
    I pairs[M][RV];
#pragma GCC unroll 8
    for (int quad = begin; quad < begin + n; ++quad) {
      I code[RV];
#pragma GCC unroll 8
      for (int v = 0; v < RV; ++v) code[v] = codes(quad, v);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        const I x = all(load_as<int32_t>(a + (quad * M + m) * 4));
#pragma GCC unroll 8
        for (int v = 0; v < RV; ++v) {
          const I products = pairs_of(code[v], x);
          pairs[m][v] = quad == begin ? products : add_pairs(pairs[m][v], products);
        }
      }
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
      for (int v = 0; v < RV; ++v) sums[m][v] += sums_of_pairs(pairs[m][v]);
  }
}

}  // namespace ingot::cpu::INGOT_ISA
