#include "backend/blocks/kda.h"

#include "backend/backend.h"
#include "backend/blocks/product_list.h"

namespace ingot {

void KdaBlock::lay_out(Buffers& buffers) {
  buffers.scratch_f32(qkv, 3 * keys());
  buffers.scratch_f32(beta, n_heads);
  buffers.scratch_act(low, 2 * int64_t{rank});
  for (Tensor* rows : {&keep, &a, &b, &read}) buffers.scratch_f32(*rows, keys());
  buffers.scratch_act(gates, keys());
  if (!join.is_plain()) buffers.scratch_f32(branch, x.cols);
}

// q, k and v pass through short convolutions. The values that q reads from the state matrices are normed and gated.
void run_block(const KdaBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x), norm_out = backend.token_rows(b.normed), qkv = backend.token_rows(b.qkv),
               low = backend.token_rows(b.low), keep = backend.token_rows(b.keep), beta = backend.token_rows(b.beta),
               gates = backend.token_rows(b.gates), read = backend.token_rows(b.read);
  const int64_t keys = b.keys();
  const Tensor q = qkv.slice_cols(0, keys), k = qkv.slice_cols(keys, keys), v = qkv.slice_cols(2 * keys, keys);
  const auto [input, first_norm] = input_of(backend, b, norm_out);
  backend.norm_matmul(q, input, norm_out, first_norm, b.wq);
  ProductList products(low);
  products.add(k, norm_out, b.wk);
  products.add(v, norm_out, b.wv);
  products.add(beta, norm_out, b.w_beta);
  products.add(keep, norm_out, b.rates);
  products.add(gates, norm_out, b.gate);
  products.run(backend);
  int buffer = b.first_state;
  for (const auto& [rows, weight] : {std::pair{q, b.conv_q}, {k, b.conv_k}, {v, b.conv_v}})
    backend.short_conv({.x = rows, .weight = weight, .states = b.states, .buffer = buffer++});
  const Tensor a = backend.token_rows(b.a), minus = backend.token_rows(b.b);
  backend.kda_inputs({.q = q, .k = k, .keep = keep, .a = a, .b = minus, .beta = beta, .decay = b.decay, .dt = b.dt});
  backend.rank_one_rule({.y = read, .q = q, .keep = keep, .a = a, .b = minus, .k = k, .v = v, .states = b.states,
                         .buffer = buffer});
  const Tensor heads = read.reshape(x.rows * b.n_heads, b.head_dim);
  backend.norm(heads, heads, b.value_norm);
  backend.act_mul(gates, gates, read, Activation::kSigmoid);
  join(backend, b.join, x, backend.token_rows(b.branch), gates, b.wo, {}, norm_out);
}

}  // namespace ingot
