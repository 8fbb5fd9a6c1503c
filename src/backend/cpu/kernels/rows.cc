// Ops that work on one row of f32 at a time.
#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/activation.h"
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/kernels/tables.h"

namespace ingot::cpu::INGOT_ISA {
namespace {

// Loads the first n < W lanes; the other lanes are zero.
INLINE F load_some(const float* p, int64_t n) {
  F v = {};
  __builtin_memcpy(&v, p, (size_t)n * 4);
  return v;
}
INLINE void store_some(float* p, F v, int64_t n) { __builtin_memcpy(p, &v, (size_t)n * 4); }

// y[i] = f(a[i]) or f(a[i], b[i]) over n elements.
template <class Fn>
INLINE void map(float* y, const float* a, int64_t n, Fn&& f) {
  int64_t i = 0;
  for (; i + W <= n; i += W) store(y + i, f(load(a + i)));
  if (i < n) store_some(y + i, f(load_some(a + i, n - i)), n - i);
}
template <class Fn>
INLINE void map(float* y, const float* a, const float* b, int64_t n, Fn&& f) {
  int64_t i = 0;
  for (; i + W <= n; i += W) store(y + i, f(load(a + i), load(b + i)));
  if (i < n) store_some(y + i, f(load_some(a + i, n - i), load_some(b + i, n - i)), n - i);
}

// The sum of f(x[i]).
template <class Fn>
INLINE float total(const float* x, int64_t n, Fn&& f) {
  F sums[4] = {};
  int64_t i = 0;
  for (; i + 4 * W <= n; i += 4 * W)
    for (int j = 0; j < 4; ++j) sums[j] += f(load(x + i + j * W));
  for (; i + W <= n; i += W) sums[0] += f(load(x + i));
  float rest = 0;
  if (i < n) {
    float lanes[W];
    store(lanes, f(load_some(x + i, n - i)));
    for (int j = 0; j < n - i; ++j) rest += lanes[j];
  }
  return sum((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest;
}

}  // namespace

void norm(float* y, const float* x, int64_t n, const float* weight, const float* bias, float eps, bool layer_norm) {
  const float mean = layer_norm ? total(x, n, [](F v) { return v; }) / (float)n : 0.0f;
  const float squares = total(x, n, [&](F v) { return (v - mean) * (v - mean); });
  const float inverse = 1.0f / __builtin_sqrtf(squares / (float)n + eps);
  int64_t i = 0;
  for (; i + W <= n; i += W) {
    F v = (load(x + i) - mean) * inverse;
    if (weight) v *= load(weight + i);
    if (bias) v += load(bias + i);
    store(y + i, v);
  }
  for (; i < n; ++i) y[i] = (x[i] - mean) * inverse * (weight ? weight[i] : 1.0f) + (bias ? bias[i] : 0.0f);
}

void add(float* x, const float* y, int64_t n) {
  map(x, x, y, n, [](F a, F b) { return a + b; });
}

void add_scaled(float* x, const float* y, float factor, int64_t n) {
  map(x, x, y, n, [&](F a, F b) { return a + factor * b; });
}

void act_mul(float* y, const float* gate, const float* up, int64_t n, int act) {
  for_activation(
      act, [&]<int kind>(ActivationOf<kind>) { map(y, gate, up, n, [](F g, F u) { return gated<kind>(g, u); }); });
}

void act(float* x, int64_t n, int act) {
  for_activation(act, [&]<int kind>(ActivationOf<kind>) { map(x, x, n, [](F v) { return activate<kind>(v); }); });
}

void scale(float* x, int64_t n, float factor, float softcap) {
  if (softcap > 0) {
    const float inverse = factor / softcap;
    return map(x, x, n, [&](F v) { return softcap * tanh(v * inverse); });
  }
  map(x, x, n, [&](F v) { return v * factor; });
}

// A step of the fast transform within vectors: the sums and differences of lanes i and i ^ s.
template <int s, int... i>
INLINE F sums_and_differences(F v, Lanes<i...>) {
  if constexpr (s >= W) return v;
  const F signs = {((i & s) != 0 ? -1.0f : 1.0f)...};
  return __builtin_shufflevector(v, v, ((i ^ s) % W)...) + v * signs;
}

void hadamard(float* x, int64_t n, int block) {
  constexpr LanesOf<W> lanes;
  const float factor = 1.0f / __builtin_sqrtf((float)block);
  for (int64_t i = 0; i < n; i += W) {
    F v = load_part(x, i, n) * factor;
    if (block > 1) v = sums_and_differences<1>(v, lanes);
    if (block > 2) v = sums_and_differences<2>(v, lanes);
    if (block > 4) v = sums_and_differences<4>(v, lanes);
    if (block > 8) v = sums_and_differences<8>(v, lanes);
    store_part(x, i, n, v);
  }
  for (int64_t s = W; s < block; s *= 2)
    for (int64_t first = 0; first < n; first += 2 * s)
      for (int64_t i = first; i < first + s; i += W) {
        const F u = load(x + i), v = load(x + i + s);
        store(x + i, u + v);
        store(x + i + s, u - v);
      }
}

void rope(float* x, int n_heads, int head_dim, const float* cosines, const float* sines, int n_freq, bool interleaved) {
  for (int h = 0; h < n_heads; ++h, x += head_dim) {
    if (interleaved) {
      for (int i = 0; i < n_freq; ++i) {
        const float u = x[2 * i], v = x[2 * i + 1];
        x[2 * i] = u * cosines[i] - v * sines[i];
        x[2 * i + 1] = v * cosines[i] + u * sines[i];
      }
      continue;
    }
    int i = 0;
    for (; i + W <= n_freq; i += W) {
      const F u = load(x + i), v = load(x + n_freq + i), c = load(cosines + i), s = load(sines + i);
      store(x + i, u * c - v * s);
      store(x + n_freq + i, v * c + u * s);
    }
    for (; i < n_freq; ++i) {
      const float u = x[i], v = x[n_freq + i];
      x[i] = u * cosines[i] - v * sines[i];
      x[n_freq + i] = v * cosines[i] + u * sines[i];
    }
  }
}

}  // namespace ingot::cpu::INGOT_ISA
