#include "backend/blocks/feed_forward.h"

#include "backend/backend.h"

namespace ingot {

void FeedForwardBlock::lay_out(Buffers& buffers) {
  buffers.scratch_act(hidden, ffn_dim);
  if (deviations || gate_scale != 1) buffers.scratch_act(up, ffn_dim);
  if (!join.is_plain()) buffers.scratch_f32(branch, x.cols);
}

void run_block(const FeedForwardBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x), norm_out = backend.token_rows(b.normed),
               hidden = backend.token_rows(b.hidden);
  const auto [input, first_norm] = input_of(backend, b, norm_out);
  if (b.is_fused()) {
    backend.gate_up({.y = hidden,
                     .x = input,
                     .norm = first_norm,
                     .normed = norm_out,
                     .w_gate = &b.w_gate,
                     .w_up = &b.w_up,
                     .b_gate = b.b_gate,
                     .b_up = b.b_up,
                     .act = b.act});
  } else if (b.w_gate) {
    const Tensor up = backend.token_rows(b.up);
    backend.norm_matmul(hidden, input, norm_out, first_norm, b.w_gate, b.b_gate);
    if (b.gate_scale != 1) backend.scale(hidden, b.gate_scale, 0);
    if (b.deviations) backend.keep_above(hidden, *b.deviations);
    backend.matmul(up, first_norm.weight ? norm_out : input, b.w_up, b.b_up);
    backend.act_mul(hidden, hidden, up, b.act);
  } else {
    backend.norm_matmul(hidden, input, norm_out, first_norm, b.w_up, b.has_xielu ? b.b_up : Tensor{});
    b.has_xielu ? backend.xielu(hidden, b.xielu) : backend.act(hidden, b.act, b.b_up);
  }
  join(backend, b.join, x, backend.token_rows(b.branch), hidden, b.w_down, b.b_down, norm_out);
}

}  // namespace ingot
