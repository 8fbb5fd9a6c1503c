// Activation functions on vectors: act(gate) * up.
#pragma once
#include "backend/cpu/kernels/simd.h"

namespace ingot::cpu::INGOT_ISA {

// As Activation (backend.h), which this header must not include.
enum { kSilu, kGeluTanh, kGelu };

template <int act>
INLINE F activate(F x) {
  if constexpr (act == kSilu) return x * sigmoid(x);
  if constexpr (act == kGelu) return 0.5f * x * (1.0f + erf(x * 0.70710678f));
  return x * sigmoid(1.59576912f * (x + 0.044715f * x * x * x));  // (1 + tanh(u)) / 2 = sigmoid(2u)
}

// y may be gate. n is a multiple of W.
INLINE void act_mul_row(float* y, const float* gate, const float* up, int64_t n, int act) {
  switch (act) {
    case kSilu:
      for (int64_t i = 0; i < n; i += W) store(y + i, activate<kSilu>(load(gate + i)) * load(up + i));
      break;
    case kGeluTanh:
      for (int64_t i = 0; i < n; i += W) store(y + i, activate<kGeluTanh>(load(gate + i)) * load(up + i));
      break;
    default:
      for (int64_t i = 0; i < n; i += W) store(y + i, activate<kGelu>(load(gate + i)) * load(up + i));
  }
}

}  // namespace ingot::cpu::INGOT_ISA
