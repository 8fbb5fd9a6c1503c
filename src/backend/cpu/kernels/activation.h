// Activation functions on vectors: act(gate) * up.
#pragma once
#include "backend/cpu/kernels/simd.h"

namespace ingot::cpu::INGOT_ISA {

// The same values as Activation (backend/ops.h), which this header must not include.
enum { kSilu, kGeluTanh, kGelu, kClampedSwiglu, kSquaredRelu, kSigmoid };

template <int act>
INLINE F activate(F x) {
  if constexpr (act == kSilu) return x * sigmoid(x);
  if constexpr (act == kGelu) return 0.5f * x * (1.0f + erf(x * 0.70710678f));
  return x * sigmoid(1.59576912f * (x + 0.044715f * x * x * x));  // (1 + tanh(u)) / 2 = sigmoid(2u)
}

template <int act>
INLINE F gated(F gate, F up) {
  if constexpr (act == kClampedSwiglu) {
    const F g = -max(-gate, all(-7.0f)), u = -max(-max(up, all(-7.0f)), all(-7.0f));
    return g * sigmoid(1.702f * g) * (u + 1.0f);
  }
  return activate<act>(gate) * up;
}

// y may be gate. n is a multiple of W.
INLINE void act_mul_row(float* y, const float* gate, const float* up, int64_t n, int act) {
  switch (act) {
    case kSilu:
      for (int64_t i = 0; i < n; i += W) store(y + i, gated<kSilu>(load(gate + i), load(up + i)));
      break;
    case kGeluTanh:
      for (int64_t i = 0; i < n; i += W) store(y + i, gated<kGeluTanh>(load(gate + i), load(up + i)));
      break;
    case kClampedSwiglu:
      for (int64_t i = 0; i < n; i += W) store(y + i, gated<kClampedSwiglu>(load(gate + i), load(up + i)));
      break;
    default:
      for (int64_t i = 0; i < n; i += W) store(y + i, gated<kGelu>(load(gate + i), load(up + i)));
  }
}

}  // namespace ingot::cpu::INGOT_ISA
