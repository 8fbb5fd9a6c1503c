#include "backend/blocks/mamba1.h"

#include "backend/backend.h"

namespace ingot {

void Mamba1Block::lay_out(Buffers& buffers) {
  buffers.scratch_f32(columns, 2 * int64_t{inner});
  buffers.scratch_f32(scan_inputs, dt_rank + 2 * int64_t{state_dim});
  buffers.scratch_f32(dt, inner);
  buffers.scratch_act(gated, inner);
  if (!join.is_plain()) buffers.scratch_f32(branch, x.cols);
}

void run_block(const Mamba1Block& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x), norm_out = backend.token_rows(b.normed),
               columns = backend.token_rows(b.columns), made = backend.token_rows(b.scan_inputs),
               dt = backend.token_rows(b.dt), gated = backend.token_rows(b.gated);
  const Tensor channels = columns.slice_cols(0, b.inner), gates = columns.slice_cols(b.inner, b.inner),
               narrow_dt = made.slice_cols(0, b.dt_rank), in = made.slice_cols(b.dt_rank, b.state_dim),
               out = made.slice_cols(b.dt_rank + b.state_dim, b.state_dim);
  const auto [input, first_norm] = input_of(backend, b, norm_out);
  backend.norm_matmul(columns, input, norm_out, first_norm, b.w_in);
  backend.short_conv(
      {.x = channels, .weight = b.conv, .bias = b.conv_bias, .states = b.states, .buffer = b.first_state});
  backend.matmul(made, channels, b.w_x);
  if (b.has_norms) {
    backend.norm(narrow_dt, narrow_dt, b.dt_norm);
    backend.norm(in, in, b.b_norm);
    backend.norm(out, out, b.c_norm);
  }
  backend.matmul(dt, narrow_dt, b.w_dt);
  backend.selective_scan({.y = gated,
                          .x = channels,
                          .dt = dt,
                          .gate = gates,
                          .b = in,
                          .c = out,
                          .decay = b.decay,
                          .dt_bias = b.dt_bias,
                          .skip = b.skip,
                          .states = b.states,
                          .buffer = b.first_state + 1});
  join(backend, b.join, x, backend.token_rows(b.branch), gated, b.wo, {}, norm_out);
}

}  // namespace ingot
