#include "backend/blocks/cross_attention.h"

#include "backend/backend.h"

namespace ingot {

void CrossAttentionBlock::lay_out(Buffers& buffers) {
  const int64_t heads_dim = int64_t{attention.n_heads} * attention.head_dim;
  buffers.has_attention(attention);
  buffers.scratch_act(normed, x.cols);
  buffers.scratch_act(q, heads_dim);
  buffers.scratch_act(attended, heads_dim);
  if (keeps) {
    buffers.keep(kept_q, DType::kF32, buffers.limits().max_tokens, heads_dim);
    buffers.keep(kept_k, DType::kF32, source.rows, heads_dim);
  }
  for (Tensor* rows : {&k, &v}) buffers.scratch(*rows, buffers.act(), source.rows, heads_dim);
}

void run_block(const CrossAttentionBlock& b, Backend& backend) {
  if (const Tensor source = backend.source_rows(b.source); source.rows > 0) {
    const Tensor k = backend.source_rows(b.k), v = backend.source_rows(b.v);
    backend.matmul(k, source, b.wk, b.bk);
    backend.matmul(v, source, b.wv, b.bv);
    backend.kv_write(*b.kv, b.attention.layer, k, v);
    if (b.keeps) backend.copy(backend.source_rows(b.kept_k), k);
  }
  const Tensor x = backend.token_rows(b.x), q = backend.token_rows(b.q), attended = backend.token_rows(b.attended);
  backend.norm_matmul(q, x, backend.token_rows(b.normed), b.norm, b.wq, b.bq);
  if (b.keeps) backend.copy(backend.token_rows(b.kept_q), q);
  backend.attention(attended, q, *b.kv, b.attention);
  backend.matmul_add(x, attended, b.wo, b.bo);
}

}  // namespace ingot
