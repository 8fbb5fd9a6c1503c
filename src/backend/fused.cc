// The default bodies of the fused ops. They define the ops, and tests compare every override with them.
#include "backend/backend.h"
#include "base/system.h"

namespace ingot {

size_t Backend::available_bytes() const { return available_memory_bytes(); }

Tensor Backend::scratch(int64_t rows, int64_t cols) {
  if (scratch_.rows * scratch_.cols < rows * cols) scratch_ = alloc(act_dtype(), rows, cols);
  return scratch_.view(rows, cols);
}

void Backend::qkv(const QkvArgs& a) {
  const int64_t n = a.x.rows;
  const Tensor x = normed(a.x, a.normed, a.norm);
  matmul(a.q, x, *a.wq, a.bq);
  matmul(a.k, x, *a.wk, a.bk);
  matmul(a.v, x, *a.wv, a.bv);
  if (a.heads_of_ranks != nullptr) norm_across_ranks(*a.heads_of_ranks, a);
  for (const auto& [rows, args] : {std::pair{a.q, a.q_norm}, {a.k, a.k_norm}}) {
    if (!args.weight || a.heads_of_ranks != nullptr) continue;
    const Tensor heads = rows.reshape(n * rows.cols / args.weight.cols, args.weight.cols);
    norm(heads, heads, args);
  }
  if (a.rope.angles) {
    rope(a.q, a.n_heads, a.rope);
    rope(a.k, a.n_kv_heads, a.rope);
  }
  if (const int rotation = a.kv->shape.key_rotation(); rotation > 1) {
    hadamard(a.q, rotation);
    hadamard(a.k, rotation);
  }
  kv_write(*a.kv, a.layer, a.k, a.v);
}

void Backend::gate_up(const GateUpArgs& a) {
  const Tensor x = normed(a.x, a.normed, a.norm), up = scratch(a.y.rows, a.y.cols);
  matmul(a.y, x, *a.w_gate, a.b_gate);
  matmul(up, x, *a.w_up, a.b_up);
  act_mul(a.y, a.y, up, a.act);
}

void Backend::wkv7(const Wkv7Args& a) {
  wkv7_inputs(a.inputs);
  rank_one_rule(a.rule);
  wkv7_outputs(a.outputs);
  if (a.out.data != a.outputs.y.data) copy(a.out, a.outputs.y);
}

void Backend::matmuls(std::span<const Product> products) {
  for (const Product& p : products) {
    matmul(p.y, p.x, *p.w, p.bias);
    if (p.act) act(p.y, *p.act);
    if (p.cap != 0) scale(p.y, 1, p.cap);
  }
}

void Backend::matmul_add(Tensor residual, Tensor x, const Weight& w, Tensor bias) {
  const Tensor y = scratch(residual.rows, residual.cols);
  matmul(y, x, w, bias);
  add(residual, y);
}

void Backend::add_normed(Tensor x, Tensor y, const NormArgs& args, float factor) {
  norm(y, y, args);
  add(x, y);
  if (factor != 1) scale(x, factor, 0);
}

void Backend::gated_norm(Tensor y, Tensor x, Tensor gate, const NormArgs& args) {
  act_mul(x, gate, x, Activation::kSilu);
  const int64_t width = args.weight.cols;
  for (int64_t group = 0; group < args.weight.rows; ++group) {
    NormArgs norm_of_group = args;
    norm_of_group.weight = args.weight.slice_rows(group, 1);
    norm(y.slice_cols(group * width, width), x.slice_cols(group * width, width), norm_of_group);
  }
}

void Backend::add_reduced(Tensor x, Tensor y, Tensor norm_out, const NormArgs& args) {
  all_reduce(y);
  add(x, y);
  if (norms_sums(x, args)) norm(norm_out, x, args);
}

bool Backend::norms_sums(const Tensor&, const NormArgs&) const { return false; }

void Backend::norm_matmul(Tensor y, Tensor x, Tensor norm_out, const NormArgs& args, const Weight& w, Tensor bias) {
  matmul(y, normed(x, norm_out, args), w, bias);
}

void Backend::moe(const MoeArgs& a) {
  const Tensor x = normed(a.x, a.normed, a.norm);
  matmul(a.logits, a.router_x ? a.router_x : x, *a.w_router, a.b_router);
  moe_route(a.ids, a.weights, a.logits, a.route);
  moe_matmul(a.gate, x, *a.w_gate, a.ids, a.b_gate);
  moe_matmul(a.up, x, *a.w_up, a.ids, a.b_up);
  act_mul(a.gate, a.gate, a.up, a.act);
  moe_matmul(a.out, a.gate, *a.w_down, a.ids, a.b_down);
  moe_combine(a.residual, a.out, a.weights);
}

}  // namespace ingot
