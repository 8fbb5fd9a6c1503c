// Activation functions on vectors: act(gate) * up.
#pragma once
#include "backend/cpu/kernels/simd.h"

namespace ingot::cpu::INGOT_ISA {

// The same values as Activation (backend/ops.h), which this header must not include.
enum { kSilu, kGeluTanh, kGelu, kClampedSwiglu, kSquaredRelu, kSigmoid };

template <int act>
INLINE F activate(F x) {
  if constexpr (act == kSquaredRelu) {
    const F positive = x > 0.0f ? x : x - x;
    return positive * positive;
  }
  if constexpr (act == kSigmoid) return sigmoid(x);
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

template <int act>
struct ActivationOf {};

// Calls fn(ActivationOf<act>).
template <class Fn>
INLINE void for_activation(int act, Fn&& fn) {
  switch (act) {
    case kSilu: return fn(ActivationOf<kSilu>{});
    case kGeluTanh: return fn(ActivationOf<kGeluTanh>{});
    case kGelu: return fn(ActivationOf<kGelu>{});
    case kClampedSwiglu: return fn(ActivationOf<kClampedSwiglu>{});
    case kSquaredRelu: return fn(ActivationOf<kSquaredRelu>{});
    case kSigmoid: return fn(ActivationOf<kSigmoid>{});
  }
}

// y may be gate. n is a multiple of W.
INLINE void act_mul_row(float* y, const float* gate, const float* up, int64_t n, int act) {
  for_activation(act, [&]<int kind>(ActivationOf<kind>) {
    for (int64_t i = 0; i < n; i += W) store(y + i, gated<kind>(load(gate + i), load(up + i)));
  });
}

}  // namespace ingot::cpu::INGOT_ISA
