// Dense panels (f32, f16, bf16) times activations: tokens x vectors of f32 accumulators that stay in registers for the
// whole of k.
#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/kernels/tables.h"

namespace ingot::cpu::INGOT_ISA {
namespace {

constexpr int RV = W == 4 ? 4 : 2;  // vectors of rows in one pass

template <Dense type>
INLINE F load_weights(const uint8_t* panel, int64_t i) {
  if constexpr (type == Dense::kF16) return load_f16((const uint16_t*)panel + i);
  return load((const float*)panel + i);
}

template <Dense type, int M>
INLINE void dense_pass(F (&acc)[M][RV], const uint8_t* panel, const uint8_t* act, int64_t n_in, int row) {
  constexpr int k_bytes = kPanelRows * (type == Dense::kF32 ? 4 : 2);
#pragma GCC unroll 4
  for (int64_t k = 0; k < n_in; ++k) {
    F w[RV];
#pragma GCC unroll 4
    for (int v = 0; v < RV; ++v) w[v] = load_weights<type>(panel, k * kPanelRows + row + v * W);
    if constexpr (M <= kPrefetchTokens) prefetch<k_bytes>(panel + k * k_bytes + kPrefetchAhead);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const F x = all(load_as<float>(act + (k * M + m) * 4));
#pragma GCC unroll 4
      for (int v = 0; v < RV; ++v) acc[m][v] += x * w[v];
    }
  }
}

// Pairs of k: each 32-bit lane holds two weights of a row.
template <int M>
INLINE void bf16_pass(F (&acc)[M][RV], const uint8_t* panel, const uint8_t* act, int64_t n_in, int row) {
  const int64_t n_pairs = (n_in + 1) / 2;
#pragma GCC unroll 2
  for (int64_t pair = 0; pair < n_pairs; ++pair) {
    I w[RV];
#pragma GCC unroll 4
    for (int v = 0; v < RV; ++v) w[v] = load_as<I>(panel + (pair * kPanelRows + row + v * W) * 4);
    if constexpr (M <= kPrefetchTokens) prefetch<kPanelRows * 4>(panel + pair * kPanelRows * 4 + kPrefetchAhead);
    if constexpr (kBf16Dot) {
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        const I x = all(load_as<int32_t>(act + (pair * M + m) * 4));
#pragma GCC unroll 4
        for (int v = 0; v < RV; ++v) acc[m][v] = dot2_bf16(acc[m][v], w[v], x);
      }
    } else {
      const uint8_t* first = act + pair * 2 * M * 4;
      const bool whole = 2 * pair + 1 < n_in;
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        const F x0 = all(load_as<float>(first + m * 4));
        const F x1 = all(whole ? load_as<float>(first + (M + m) * 4) : 0.0f);
#pragma GCC unroll 4
        for (int v = 0; v < RV; ++v) {
          acc[m][v] += x0 * (F)(w[v] << 16);
          acc[m][v] += x1 * (F)(w[v] & (int32_t)0xFFFF0000);
        }
      }
    }
  }
}

template <Dense type, int M>
void dense_tile(const uint8_t* panel, const uint8_t* act, int64_t n_in, const uint8_t*, float* out) {
  for (int row = 0; row < kPanelRows; row += RV * W) {
    F acc[M][RV] = {};
    if constexpr (type == Dense::kBF16) {
      bf16_pass<M>(acc, panel, act, n_in, row);
    } else {
      dense_pass<type, M>(acc, panel, act, n_in, row);
    }
    for (int m = 0; m < M; ++m)
      for (int v = 0; v < RV; ++v) store(out + m * kPanelRows + row + v * W, acc[m][v]);
  }
}

template <Dense type, int... m>
constexpr TileRow row_of(Lanes<m...>) {
  return {{dense_tile<type, m + 1>...}};
}

}  // namespace

const TileRow kDenseTiles[kDenseCount] = {row_of<Dense::kF32>(LanesOf<kDenseTile>()),
                                          row_of<Dense::kF16>(LanesOf<kDenseTile>()),
                                          row_of<Dense::kBF16>(LanesOf<kDenseTile>())};

}  // namespace ingot::cpu::INGOT_ISA
