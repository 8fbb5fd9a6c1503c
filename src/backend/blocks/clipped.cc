#include "backend/blocks/clipped.h"

#include <algorithm>
#include <cmath>

#include "backend/backend.h"

namespace ingot {

void multiply(Backend& backend, const Tensor& y, const Tensor& x, const ClippedProduct& p, const Tensor& clipped) {
  Tensor input = x;
  if (std::isfinite(p.in_low) || std::isfinite(p.in_high)) {
    input = clipped.slice_rows(0, x.rows).slice_cols(0, x.cols);
    backend.copy(input, x);
    backend.clamp(input, p.in_low, p.in_high);
  }
  backend.matmul(y, input, p.w);
  if (std::isfinite(p.out_low) || std::isfinite(p.out_high)) backend.clamp(y, p.out_low, p.out_high);
}

void ClippedAttentionBlock::lay_out(Buffers& buffers) {
  const int64_t q_dim = int64_t{attention.n_heads} * attention.head_dim,
                kv_dim = int64_t{attention.n_kv_heads} * attention.head_dim;
  buffers.has_attention(attention);
  buffers.scratch_act(input, x.cols);
  buffers.scratch_act(clipped, std::max(q_dim, x.cols));
  buffers.scratch_act(queries, q_dim);
  buffers.scratch_act(keys, kv_dim);
  buffers.scratch_act(values, kv_dim);
  buffers.scratch_act(attended, q_dim);
  buffers.scratch_f32(branch, x.cols);
}

void run_block(const ClippedAttentionBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x), input = backend.token_rows(b.input),
               queries = backend.token_rows(b.queries), keys = backend.token_rows(b.keys),
               values = backend.token_rows(b.values), attended = backend.token_rows(b.attended),
               branch = backend.token_rows(b.branch);
  const AttentionArgs& a = b.attention;
  const auto norm_heads = [&](const Tensor& rows, const NormArgs& norm) {
    const Tensor heads = rows.reshape(rows.rows * rows.cols / a.head_dim, a.head_dim);
    backend.norm(heads, heads, norm);
  };
  backend.norm(input, x, b.norm);
  multiply(backend, queries, input, b.q, b.clipped);
  multiply(backend, keys, input, b.k, b.clipped);
  multiply(backend, values, input, b.v, b.clipped);
  norm_heads(queries, b.q_norm);
  norm_heads(keys, b.k_norm);
  norm_heads(values, b.v_norm);
  const RopeArgs rope{backend.token_rows(b.rope.angles), b.rope.layout};
  backend.rope(queries, a.n_heads, rope);
  backend.rope(keys, a.n_kv_heads, rope);
  backend.kv_write(*b.kv, a.layer, keys, values);
  backend.attention(attended, queries, *b.kv, a);
  multiply(backend, branch, attended, b.o, b.clipped);
  backend.norm(branch, branch, b.post_norm);
  backend.add(x, branch);
}

void ClippedFeedForwardBlock::lay_out(Buffers& buffers) {
  buffers.scratch_act(input, x.cols);
  buffers.scratch_act(clipped, std::max(x.cols, gate.w.n_out));
  buffers.scratch_act(hidden, gate.w.n_out);
  buffers.scratch_act(factor, gate.w.n_out);
  buffers.scratch_f32(branch, x.cols);
}

void run_block(const ClippedFeedForwardBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x), input = backend.token_rows(b.input), hidden = backend.token_rows(b.hidden),
               factor = backend.token_rows(b.factor), branch = backend.token_rows(b.branch);
  backend.norm(input, x, b.norm);
  multiply(backend, hidden, input, b.gate, b.clipped);
  multiply(backend, factor, input, b.up, b.clipped);
  backend.act_mul(hidden, hidden, factor, b.act);
  multiply(backend, branch, hidden, b.down, b.clipped);
  backend.norm(branch, branch, b.post_norm);
  backend.add(x, branch);
}

}  // namespace ingot
