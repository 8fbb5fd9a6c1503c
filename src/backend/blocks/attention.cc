#include "backend/blocks/attention.h"

#include "backend/backend.h"

namespace ingot {

void AttentionBlock::lay_out(Buffers& buffers) {
  const int64_t q_dim = int64_t{attention.n_heads} * attention.head_dim;
  const int64_t kv_dim = int64_t{attention.n_kv_heads} * attention.head_dim;
  buffers.has_attention(attention);
  buffers.scratch_act(q, q_dim);
  if (!only_queries) buffers.scratch_act(k, kv_dim);
  if (!only_queries) buffers.scratch_act(v, kv_dim);
  buffers.scratch_act(attended, q_dim);
  if (has_gate) buffers.scratch_act(gates, q_dim);
  if (!join.is_plain()) buffers.scratch_f32(branch, x.cols);  // values before a post-norm may not fit f16
  if (heads_of_ranks) buffers.scratch_act(heads_of_ranks->rows, heads_of_ranks->q_dim + heads_of_ranks->k_dim);
}

static void norm_heads(Backend& backend, const Tensor& rows, int64_t head_dim, const NormArgs& norm) {
  const Tensor heads = rows.reshape(rows.rows * rows.cols / head_dim, head_dim);
  backend.norm(heads, heads, norm);
}

// The norm of each head and the rope of q or k, in the order of the model, and the rotation of the cache's keys.
static void rotate(const AttentionBlock& b, Backend& backend, const Tensor& rows, int n_heads, const NormArgs& norm) {
  const auto rope = [&] {
    if (b.rope.angles) backend.rope(rows, n_heads, {backend.token_rows(b.rope.angles), b.rope.layout});
  };
  if (b.norms_after_rope) rope();
  if (norm.weight || b.norms_heads)
    norm_heads(backend, rows, norm.weight ? norm.weight.cols : b.attention.head_dim, norm);
  if (!b.norms_after_rope) rope();
  if (const int rotation = b.kv->shape.key_rotation(); rotation > 1) backend.hadamard(rows, rotation);
}

// The queries alone, for keys and values that an earlier layer has written.
static void make_queries(const AttentionBlock& b, Backend& backend, const Tensor& q, const Tensor& norm_out) {
  CHECK(!b.heads_of_ranks && !b.reads_pair);
  const auto [input, norm] = input_of(backend, b, norm_out);
  backend.norm_matmul(q, input, norm_out, norm, b.wq, b.bq);
  rotate(b, backend, q, b.attention.n_heads, b.q_norm);
}

// Queries, keys and values that the fused op does not make. Without a matrix, values are the keys before norm and rope.
static void make_values(const AttentionBlock& b, Backend& backend, const Tensor& q, const Tensor& norm_out) {
  const AttentionArgs& a = b.attention;
  const Tensor k = backend.token_rows(b.k), v = backend.token_rows(b.v);
  make_queries(b, backend, q, norm_out);
  const Tensor input = b.norm.weight ? norm_out : stream_of(backend, b);
  backend.matmul(k, input, b.wk, b.bk);
  b.wv ? backend.matmul(v, input, b.wv, b.bv) : backend.copy(v, k);
  if (b.norms_values) norm_heads(backend, v, a.head_dim, b.v_norm);
  rotate(b, backend, k, a.n_kv_heads, b.k_norm);
  backend.kv_write(*b.kv, a.layer, k, v);
}

static void make_qkv(const AttentionBlock& b, Backend& backend, const Tensor& q, const Tensor& norm_out) {
  const AttentionArgs& a = b.attention;
  const auto [input, norm] = input_of(backend, b, norm_out);
  backend.qkv({.x = b.reads_pair ? backend.token_rows(b.pair) : input,
               .norm = norm,
               .normed = norm_out,
               .wq = &b.wq,
               .wk = &b.wk,
               .wv = &b.wv,
               .bq = b.bq,
               .bk = b.bk,
               .bv = b.bv,
               .q_norm = b.q_norm,
               .k_norm = b.k_norm,
               .heads_of_ranks = b.heads_of_ranks ? &*b.heads_of_ranks : nullptr,
               .rope = {backend.token_rows(b.rope.angles), b.rope.layout},
               .n_heads = a.n_heads,
               .n_kv_heads = a.n_kv_heads,
               .head_dim = a.head_dim,
               .kv = b.kv,
               .layer = a.layer,
               .q = q,
               .k = backend.token_rows(b.k),
               .v = backend.token_rows(b.v)});
}

void run_block(const AttentionBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x), norm_out = backend.token_rows(b.normed), q = backend.token_rows(b.q),
               attended = backend.token_rows(b.attended);
  const AttentionArgs& a = b.attention;
  if (b.only_queries) {
    make_queries(b, backend, q, norm_out);
  } else if (!b.is_fused()) {
    make_values(b, backend, q, norm_out);
  } else {
    make_qkv(b, backend, q, norm_out);
  }
  if (b.query_scale.beta != 0) backend.scale_by_position(q, b.query_scale);
  if (b.only_keys) return;
  backend.attention(attended, q, *b.kv, a);
  if (b.gate) {
    const Tensor gates = b.gates.view(x.rows, b.gate.n_out);
    backend.matmul(gates, b.norm.weight ? norm_out : stream_of(backend, b), b.gate);
    if (b.softplus_gate || gates.cols < attended.cols) {
      backend.scale_groups(attended, gates, b.softplus_gate ? GroupFactor::kSoftplus : GroupFactor::kSigmoid);
    } else {
      backend.gate(attended, gates);
    }
  }
  join(backend, b.join, x, backend.token_rows(b.branch), attended, b.wo, b.bo, norm_out);
}

}  // namespace ingot
