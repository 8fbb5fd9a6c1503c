// The kernels of RWKV-7 besides its rule: the mix of a token with the one before it, and what precedes and follows the
// rule in a head.
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/kernels/tables.h"

namespace ingot::cpu::INGOT_ISA {
// If `before` and `after` are the same buffer, the old contents are read before the new contents are written.
void mix_tokens(const MixJob& job) {
  constexpr int n_vectors = kConvChannels / W;
  const int64_t n = job.n_channels;
  F last[n_vectors] = {};
  for (int64_t i = 0, j = 0; i < n && job.before != nullptr; i += W, ++j) last[j] = load_part(job.before, i, n);
  for (int t = 0; t < job.n_tokens; ++t) {
    const float* x = job.x + t * job.x_stride;
    float* y = job.y + t * job.y_stride;
    for (int64_t i = 0, j = 0; i < n; i += W, ++j) {
      const F now = load_part(x, i, n), change = last[j] - now;
      for (int m = 0; m < job.n_mixes; ++m)
        store_part(y + m * job.dim, i, n, now + load_part(job.mix + m * job.dim, i, n) * change);
      last[j] = now;
    }
  }
  for (int64_t i = 0, j = 0; i < n; i += W, ++j) store_part(job.after, i, n, last[j]);
}

void wkv7_inputs(const Wkv7Head& h) {
  F squares = {};
  for (int64_t i = 0; i < h.n; i += W) {
    const F kk = load_part(h.k, i, h.n) * load_part(h.k_k, i, h.n);
    squares += kk * kk;
  }
  const float length = __builtin_sqrtf(sum(squares)), inverse = 1.0f / (length > 1e-12f ? length : 1e-12f);
  for (int64_t i = 0; i < h.n; i += W) {
    const F k = load_part(h.k, i, h.n), kk = k * load_part(h.k_k, i, h.n) * inverse,
            rate = sigmoid(load_part(h.b, i, h.n)), v = load_part(h.v, i, h.n);
    store_part(h.keep, i, h.n, exp(sigmoid(load_part(h.keep, i, h.n)) * -0.60653066f));
    store_part(h.k, i, h.n, k * (1.0f + (rate - 1.0f) * load_part(h.k_a, i, h.n)));
    store_part(h.a, i, h.n, -kk);
    store_part(h.b, i, h.n, kk * rate);
    if (h.v_gate == nullptr) {
      store_part(h.v_first, i, h.n, v);
      continue;
    }
    store_part(h.v, i, h.n, v + sigmoid(load_part(h.v_gate, i, h.n)) * (load_part(h.v_first, i, h.n) - v));
  }
}

void wkv7_outputs(const Wkv7Output& h) {
  F total = {}, bonus = {}, squares = {};
  for (int64_t i = 0; i < h.n; i += W) {
    total += load_part(h.y, i, h.n);
    bonus += load_part(h.r, i, h.n) * load_part(h.k, i, h.n) * load_part(h.r_k, i, h.n);
  }
  const float mean = sum(total) / (float)h.n, share = sum(bonus);
  float lanes[W];
  for (int64_t i = 0; i < h.n; i += W) {
    store(lanes, load_part(h.y, i, h.n) - mean);
    const F rest = load_part(lanes, 0, h.n - i < W ? h.n - i : W);  // without the lanes behind the head
    squares += rest * rest;
  }
  const float inverse = 1.0f / __builtin_sqrtf(sum(squares) / (float)h.n + h.eps);
  for (int64_t i = 0; i < h.n; i += W) {
    const F normed =
        (load_part(h.y, i, h.n) - mean) * inverse * load_part(h.weight, i, h.n) + load_part(h.bias, i, h.n);
    store_part(h.y, i, h.n, load_part(h.gate, i, h.n) * (normed + share * load_part(h.v, i, h.n)));
  }
}

}  // namespace ingot::cpu::INGOT_ISA
