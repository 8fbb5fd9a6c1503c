#include "backend/blocks/rg_lru.h"

#include "backend/backend.h"

namespace ingot {

void RgLruBlock::lay_out(Buffers& buffers) {
  buffers.has_experts(n_heads, head_dim);
  buffers.scratch_act(gated, width());
  for (Tensor* rows : {&channels, &input_gates, &decay_gates}) buffers.scratch_f32(*rows, width());
  if (!join.is_plain()) buffers.scratch_f32(branch, x.cols);
}

void run_block(const RgLruBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x), norm_out = backend.token_rows(b.normed),
               channels = backend.token_rows(b.channels), gated = backend.token_rows(b.gated),
               input_gates = backend.token_rows(b.input_gates), decay_gates = backend.token_rows(b.decay_gates),
               head_ids = backend.token_rows(b.head_ids);
  const auto [input, first_norm] = input_of(backend, b, norm_out);
  backend.norm_matmul(gated, input, norm_out, first_norm, b.w_y, b.b_y);
  backend.matmul(channels, first_norm.weight ? norm_out : input, b.w_x, b.b_x);
  backend.short_conv({.x = channels,
                      .weight = b.conv,
                      .bias = b.conv_bias,
                      .silu = false,
                      .states = b.states,
                      .buffer = b.first_state});
  const auto heads = [&](const Tensor& rows) { return rows.reshape(x.rows * b.n_heads, b.head_dim); };
  backend.moe_matmul(heads(input_gates), heads(channels), b.w_input_gate, head_ids, b.b_input_gate);
  backend.moe_matmul(heads(decay_gates), heads(channels), b.w_decay_gate, head_ids, b.b_decay_gate);
  backend.rg_lru({.x = channels,
                  .input_gate = input_gates,
                  .decay_gate = decay_gates,
                  .decay = b.decay,
                  .states = b.states,
                  .buffer = b.first_state + 1});
  backend.act_mul(gated, gated, channels, Activation::kGeluTanh);
  join(backend, b.join, x, backend.token_rows(b.branch), gated, b.wo, b.bo, norm_out);
}

}  // namespace ingot
