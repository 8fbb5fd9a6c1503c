// The unfused bodies of the fused verbs: what each of them means, and the oracle of every override.
#include <algorithm>

#include "backend/backend.h"

namespace ingot {

void Backend::reserve(const StepLimits& limits) {
  scratch_ = alloc(activation_dtype(), limits.max_tokens, std::max(limits.max_width, 1));
}

void Backend::qkv(const QkvArgs& a) {
  const int64_t n = a.x.rows;
  matmul(a.q, a.x, *a.wq, a.bq);
  matmul(a.k, a.x, *a.wk, a.bk);
  matmul(a.v, a.x, *a.wv, a.bv);
  if (a.q_norm.weight) {
    const Tensor heads = a.q.reshape(n * a.n_heads, a.head_dim);
    norm(heads, heads, a.q_norm);
  }
  if (a.k_norm.weight) {
    const Tensor heads = a.k.reshape(n * a.n_kv_heads, a.head_dim);
    norm(heads, heads, a.k_norm);
  }
  if (a.rope.angles) {
    rope(a.q, a.n_heads, a.rope);
    rope(a.k, a.n_kv_heads, a.rope);
  }
  kv_write(*a.kv, a.layer, a.k, a.v);
}

void Backend::gate_up(Tensor y, Tensor x, const Weight& w_gate, const Weight& w_up, Tensor bias_gate, Tensor bias_up,
                      Activation act) {
  const Tensor up = scratch(y.rows, y.cols);
  matmul(y, x, w_gate, bias_gate);
  matmul(up, x, w_up, bias_up);
  act_mul(y, y, up, act);
}

void Backend::matmul_add(Tensor residual, Tensor x, const Weight& w, Tensor bias) {
  const Tensor y = scratch(residual.rows, residual.cols);
  matmul(y, x, w, bias);
  add(residual, y);
}

void Backend::add_norm(Tensor out, Tensor residual, Tensor y, const NormArgs& args) {
  add(residual, y);
  norm(out, residual, args);
}

void Backend::norm_matmul(Tensor y, Tensor x, const NormArgs& args, const Weight& w, Tensor bias) {
  const Tensor normed = scratch(x.rows, x.cols);
  norm(normed, x, args);
  matmul(y, normed, w, bias);
}

}  // namespace ingot
