#include "backend/blocks/short_conv.h"

#include "backend/backend.h"

namespace ingot {

void ShortConvBlock::lay_out(Buffers& buffers) {
  buffers.scratch_f32(columns, 3 * int64_t{n_channels});
  if (!join.is_plain()) buffers.scratch_f32(branch, x.cols);
}

void run_block(const ShortConvBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x), norm_out = backend.token_rows(b.normed),
               columns = backend.token_rows(b.columns);
  const auto part = [&](int i) { return columns.slice_cols(int64_t{i} * b.n_channels, b.n_channels); };
  const auto [input, norm] = input_of(backend, b, norm_out);
  backend.norm_matmul(columns, input, norm_out, norm, b.w_in);
  backend.short_conv({.x = part(2),
                      .weight = b.conv,
                      .in_gate = part(0),
                      .out_gate = part(1),
                      .silu = false,
                      .states = b.states,
                      .buffer = b.first_state});
  join(backend, b.join, x, backend.token_rows(b.branch), part(2), b.wo, {}, norm_out);
}

}  // namespace ingot
