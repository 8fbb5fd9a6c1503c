#include "backend/blocks/latent_attention.h"

#include <algorithm>

#include "backend/backend.h"

namespace ingot {

void LatentAttentionBlock::lay_out(Buffers& buffers) {
  const int n_heads = attention.n_heads;
  const int64_t q_dim = int64_t{n_heads} * attention.head_dim, query_dim = int64_t{n_heads} * (nope_dim + rope_dim);
  buffers.has_attention(attention);
  buffers.has_experts(n_heads, std::max({kv_rank, nope_dim, value_dim}));
  if (q_rank > 0) buffers.scratch_act(q_low, q_rank);
  buffers.scratch_act(q_heads, query_dim);
  buffers.scratch_act(q, q_dim);
  buffers.scratch_act(latent, attention.head_dim);
  buffers.scratch_act(k, attention.head_dim);
  buffers.scratch_act(attended, q_dim);
  buffers.scratch_act(values, int64_t{n_heads} * value_dim);
  if (!join.is_plain()) buffers.scratch_f32(branch, x.cols);
}

void run_block(const LatentAttentionBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x), norm_out = backend.token_rows(b.normed),
               latent = backend.token_rows(b.latent), k = backend.token_rows(b.k);
  const Tensor q = backend.token_rows(b.q), attended = backend.token_rows(b.attended),
               values = backend.token_rows(b.values), head_ids = backend.token_rows(b.head_ids);
  const AttentionArgs& a = b.attention;
  const int64_t rows = x.rows * a.n_heads;
  const RopeArgs rope_args{backend.token_rows(b.rope.angles), b.rope.layout};

  const auto [input, first_norm] = input_of(backend, b, norm_out);
  backend.norm_matmul(latent, input, norm_out, first_norm, b.wkv_a);
  backend.copy(k.slice_cols(0, b.rope_dim), latent.slice_cols(b.kv_rank, b.rope_dim));
  backend.norm(k.slice_cols(b.rope_dim, b.kv_rank), latent.slice_cols(0, b.kv_rank), b.kv_a_norm);
  if (b.rope.angles) backend.rope(k, 1, rope_args);
  backend.kv_write(*b.kv, a.layer, k, k);
  if (b.only_keys) return;

  Tensor query_from = norm_out;
  if (b.wq_a) {
    query_from = backend.token_rows(b.q_low);
    backend.matmul(query_from, norm_out, b.wq_a);
    backend.norm(query_from, query_from, b.q_a_norm);
  }
  const Tensor q_heads = backend.token_rows(b.q_heads);
  backend.matmul(q_heads, query_from, b.wq);
  if (b.query_scale.beta != 0) backend.scale_by_position(q_heads, b.query_scale);
  const Tensor heads = q_heads.reshape(rows, b.nope_dim + b.rope_dim), q_rows = q.reshape(rows, a.head_dim);
  backend.copy(q_rows.slice_cols(0, b.rope_dim), heads.slice_cols(b.nope_dim, b.rope_dim));
  backend.moe_matmul(q_rows.slice_cols(b.rope_dim, b.kv_rank), heads.slice_cols(0, b.nope_dim), b.wk_b, head_ids, {});
  if (b.rope.angles) backend.rope(q, a.n_heads, rope_args);

  backend.attention(attended, q, *b.kv, a);
  const Tensor gathered = attended.reshape(rows, a.head_dim).slice_cols(b.rope_dim, b.kv_rank);
  backend.moe_matmul(values.reshape(rows, b.value_dim), gathered, b.wv_b, head_ids, {});
  join(backend, b.join, x, backend.token_rows(b.branch), values, b.wo, b.bo, norm_out);
}

}  // namespace ingot
