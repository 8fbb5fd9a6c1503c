#include "backend/blocks/channel_mix.h"

#include "backend/backend.h"

namespace ingot {

void ChannelMixBlock::lay_out(Buffers& buffers) {
  buffers.scratch_act(mixed, x.cols);
  buffers.scratch_act(hidden, ffn_dim);
  if (!join.is_plain()) buffers.scratch_f32(branch, x.cols);
}

void run_block(const ChannelMixBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x), norm_out = backend.token_rows(b.normed),
               mixed = backend.token_rows(b.mixed), hidden = backend.token_rows(b.hidden);
  const auto [input, first_norm] = input_of(backend, b, norm_out);
  if (first_norm.weight) backend.norm(norm_out, input, first_norm);
  backend.mix_tokens({.y = mixed, .x = norm_out, .mix = b.mix, .states = b.states, .buffer = b.first_state});
  const Product up{.y = hidden, .x = mixed, .w = &b.w_up, .act = b.act};
  backend.matmuls({&up, 1});
  join(backend, b.join, x, backend.token_rows(b.branch), hidden, b.w_down, {}, norm_out);
}

}  // namespace ingot
