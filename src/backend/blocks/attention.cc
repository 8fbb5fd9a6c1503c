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

// The queries alone, for keys and values that an earlier layer has written.
static void make_queries(const AttentionBlock& b, Backend& backend, const Tensor& q, const Tensor& norm_out) {
  CHECK(!b.heads_of_ranks && !b.reads_pair);
  const auto [input, norm] = input_of(backend, b, norm_out);
  backend.norm_matmul(q, input, norm_out, norm, b.wq, b.bq);
  if (const int64_t n = b.q_norm.weight.cols; b.q_norm.weight) {
    const Tensor heads = q.reshape(q.rows * q.cols / n, n);
    backend.norm(heads, heads, b.q_norm);
  }
  if (b.rope.angles) backend.rope(q, b.attention.n_heads, {backend.token_rows(b.rope.angles), b.rope.layout});
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
  b.only_queries ? make_queries(b, backend, q, norm_out) : make_qkv(b, backend, q, norm_out);
  if (b.only_keys) return;
  backend.attention(attended, q, *b.kv, a);
  if (b.gate) {
    const Tensor gates = backend.token_rows(b.gates);
    backend.matmul(gates, b.norm.weight ? norm_out : stream_of(backend, b), b.gate);
    backend.gate(attended, gates);
  }
  join(backend, b.join, x, backend.token_rows(b.branch), attended, b.wo, b.bo, norm_out);
}

}  // namespace ingot
