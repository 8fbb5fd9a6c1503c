#include "backend/blocks/delta_net.h"

#include "backend/backend.h"

namespace ingot {

void DeltaBlock::lay_out(Buffers& buffers) {
  const int64_t all_keys = int64_t{n_key_heads} * key_dim, all_values = int64_t{n_heads} * value_dim;
  buffers.scratch_f32(channels, 2 * all_keys + all_values);
  buffers.scratch_act(gates, all_values);
  buffers.scratch_f32(beta, n_heads);
  buffers.scratch_f32(alpha, n_heads);
  buffers.scratch_f32(read, all_values);
  if (!join.is_plain()) buffers.scratch_f32(branch, x.cols);
}

// q, k and v pass through a short convolution. The values that q reads from the state matrices are normed and gated.
void run_block(const DeltaBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x), norm_out = backend.token_rows(b.normed),
               channels = backend.token_rows(b.channels);
  const Tensor gates = backend.token_rows(b.gates), beta = backend.token_rows(b.beta),
               alpha = backend.token_rows(b.alpha), read = backend.token_rows(b.read);
  const int keys = b.n_key_heads * b.key_dim, values = b.n_heads * b.value_dim;
  const auto [input, first_norm] = input_of(backend, b, norm_out);
  const Tensor q = channels.slice_cols(0, keys), k = channels.slice_cols(keys, keys),
               v = channels.slice_cols(2 * keys, values);
  backend.norm_matmul(q, input, norm_out, first_norm, b.wq);
  const Product products[] = {{.y = k, .x = norm_out, .w = &b.wk},
                              {.y = v, .x = norm_out, .w = &b.wv},
                              {.y = gates, .x = norm_out, .w = &b.gate},
                              {.y = beta, .x = norm_out, .w = &b.w_beta},
                              {.y = alpha, .x = norm_out, .w = &b.w_alpha}};
  backend.matmuls(products);
  int buffer = b.first_state;
  const auto convolve = [&](const Tensor& rows, const Tensor& weight) {
    backend.short_conv({.x = rows, .weight = weight, .states = b.states, .buffer = buffer++});
  };
  convolve(b.has_three_convs ? q : channels, b.conv);
  if (b.has_three_convs) convolve(k, b.conv_k), convolve(v, b.conv_v);
  backend.delta_rule({.y = read,
                      .qkv = channels,
                      .beta = beta,
                      .alpha = alpha,
                      .decay = b.decay,
                      .dt = b.dt,
                      .n_key_heads = b.n_key_heads,
                      .tiled = b.tiled,
                      .share = b.share,
                      .states = b.states,
                      .buffer = buffer});
  const Tensor heads = read.reshape(x.rows * b.n_heads, b.value_dim);
  backend.norm(heads, heads, b.value_norm);
  backend.act_mul(gates, gates, read, Activation::kSilu);
  join(backend, b.join, x, backend.token_rows(b.branch), gates, b.wo, {}, norm_out);
}

}  // namespace ingot
