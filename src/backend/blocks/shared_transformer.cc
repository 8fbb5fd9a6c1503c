#include "backend/blocks/shared_transformer.h"

#include <algorithm>

#include "backend/backend.h"

namespace ingot {

void run_block(const KeepEmbeddingBlock& b, Backend& backend) {
  backend.copy(backend.token_rows(b.streams), backend.token_rows(b.x));
}

void SharedTransformerBlock::lay_out(Buffers& buffers) {
  const int64_t dim = x.cols, q_dim = int64_t{attention.n_heads} * attention.head_dim,
                kv_dim = int64_t{attention.n_kv_heads} * attention.head_dim;
  buffers.has_attention(attention);
  buffers.scratch_f32(pair, 2 * dim);
  buffers.scratch_act(input, 2 * dim);
  if (adapter_rank > 0) {
    buffers.scratch_act(low, adapter_rank);
    buffers.scratch_act(added, std::max(q_dim, 2 * int64_t{ffn_dim}));
  }
  buffers.scratch_act(q, q_dim);
  for (Tensor* rows : {&k, &v}) buffers.scratch_act(*rows, kv_dim);
  buffers.scratch_act(attended, q_dim);
  buffers.scratch_f32(t, dim);
  buffers.scratch_act(t_normed, dim);
  buffers.scratch_act(hidden, 2 * int64_t{ffn_dim});
}

// y = x w^T, and what the adapter adds.
static void multiply_adapted(const SharedTransformerBlock& b, Backend& backend, const Tensor& y, const Tensor& x,
                             const Weight& w, const LowRank& adapter) {
  backend.matmul(y, x, w);
  if (!adapter.down) return;
  const Tensor low = backend.token_rows(b.low), added = backend.token_rows(b.added).slice_cols(0, y.cols);
  backend.matmul(low, x, adapter.down);
  backend.matmul(added, low, adapter.up);
  backend.add(y, added);
}

void run_block(const SharedTransformerBlock& b, Backend& backend) {
  const auto rows = [&](const Tensor& t) { return backend.token_rows(t); };
  const Tensor pair = rows(b.pair), input = rows(b.input), q = rows(b.q), k = rows(b.k), v = rows(b.v),
               attended = rows(b.attended), t = rows(b.t), t_normed = rows(b.t_normed), hidden = rows(b.hidden);
  const int64_t dim = b.x.cols;
  backend.copy(pair.slice_cols(0, dim), rows(b.x));
  backend.copy(pair.slice_cols(dim, dim), rows(b.streams));
  backend.norm(input, pair, b.norm);
  multiply_adapted(b, backend, q, input, b.wq, b.more_q);
  multiply_adapted(b, backend, k, input, b.wk, b.more_k);
  multiply_adapted(b, backend, v, input, b.wv, b.more_v);
  if (b.rope.angles) {
    const RopeArgs rope{rows(b.rope.angles), b.rope.layout};
    backend.rope(q, b.attention.n_heads, rope);
    backend.rope(k, b.attention.n_kv_heads, rope);
  }
  if (const int rotation = b.kv->shape.key_rotation(); rotation > 1) {
    backend.hadamard(q, rotation);
    backend.hadamard(k, rotation);
  }
  backend.kv_write(*b.kv, b.attention.layer, k, v);
  backend.attention(attended, q, *b.kv, b.attention);
  backend.matmul(t, attended, b.wo);
  backend.norm(t_normed, t, b.ffn_norm);
  multiply_adapted(b, backend, hidden, t_normed, b.w_gate_up, b.more_gate_up);
  const Tensor gate = hidden.slice_cols(0, b.ffn_dim);
  backend.act_mul(gate, gate, hidden.slice_cols(b.ffn_dim, b.ffn_dim), b.act);
  backend.matmul(t_normed, gate, b.w_down);
  backend.matmul_add(rows(b.fork), t_normed, b.w_out);
}

}  // namespace ingot
