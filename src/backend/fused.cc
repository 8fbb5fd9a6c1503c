// The unfused bodies of the fused verbs: what each of them means, and the oracle of every override.
#include <algorithm>

#include "backend/backend.h"
#include "base/error.h"
#include "base/system.h"

namespace ingot {

size_t Backend::available_bytes() const { return available_memory_bytes(); }

void Backend::reserve(const StepLimits& limits) {
  scratch_ = alloc(activation_dtype(), limits.max_tokens, std::max(limits.max_width, 1));
}

void Backend::qkv(const QkvArgs& a) {
  const int64_t n = a.x.rows;
  matmul(a.q, a.x, *a.wq, a.bq);
  matmul(a.k, a.x, *a.wk, a.bk);
  matmul(a.v, a.x, *a.wv, a.bv);
  if (a.q_norm.weight) {
    const Tensor heads = a.q.reshape(n * a.q.cols / a.q_norm.weight.cols, a.q_norm.weight.cols);
    norm(heads, heads, a.q_norm);
  }
  if (a.k_norm.weight) {
    const Tensor heads = a.k.reshape(n * a.k.cols / a.k_norm.weight.cols, a.k_norm.weight.cols);
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

void Backend::moe(const MoeArgs& a) {
  matmul(a.logits, a.x, *a.w_router, a.b_router);
  moe_route(a.ids, a.weights, a.logits, a.route);
  moe_matmul(a.gate, a.x, *a.w_gate, a.ids, a.b_gate);
  moe_matmul(a.up, a.x, *a.w_up, a.ids, a.b_up);
  act_mul(a.gate, a.gate, a.up, a.act);
  moe_matmul(a.out, a.gate, *a.w_down, a.ids, a.b_down);
  moe_combine(a.residual, a.out, a.weights);
}

void Backend::copy(Tensor, Tensor) { throw Error("{} has no copy", name()); }
void Backend::moe_route(Tensor, Tensor, Tensor, const RouteArgs&) { throw Error("{} has no moe_route", name()); }
void Backend::moe_matmul(Tensor, Tensor, const Weight&, Tensor, Tensor) { throw Error("{} has no moe_matmul", name()); }
void Backend::moe_combine(Tensor, Tensor, Tensor) { throw Error("{} has no moe_combine", name()); }
std::unique_ptr<StateCache> Backend::make_states(const StateShape&) { throw Error("{} has no recurrent layers", name()); }
void Backend::gate(Tensor, Tensor) { throw Error("{} has no gate", name()); }
void Backend::short_conv(Tensor, Tensor, StateCache&, int) { throw Error("{} has no short_conv", name()); }
void Backend::delta_rule(const DeltaRuleArgs&) { throw Error("{} has no delta_rule", name()); }

}  // namespace ingot
