#include "backend/blocks/mamba2.h"

#include "backend/backend.h"

namespace ingot {

void Mamba2Block::lay_out(Buffers& buffers) {
  buffers.scratch_f32(columns, 2 * inner() + 2 * keys() + n_heads);
  buffers.scratch_f32(keep, n_heads);
  buffers.scratch_act(gated, inner());
  if (!join.is_plain()) buffers.scratch_f32(branch, x.cols);
}

// Multiplies the parts of the projection that have factors.
static void scale_columns(const Mamba2Block& b, Backend& backend, const Tensor& columns) {
  int64_t first = 0;
  for (size_t i = 0; i < b.column_factors.size(); ++i) {
    const int64_t n = b.columns_of_w_in()[i];
    if (b.column_factors[i] != 1) backend.scale(columns.slice_cols(first, n), b.column_factors[i], 0);
    first += n;
  }
}

// x, b and c pass through a short convolution. The outputs of the scan are gated, and each group of heads is normed.
void run_block(const Mamba2Block& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x), norm_out = backend.token_rows(b.normed),
               columns = backend.token_rows(b.columns);
  const int64_t inner = b.inner(), keys = b.keys();
  const Tensor gates = columns.slice_cols(0, inner), channels = columns.slice_cols(inner, inner + 2 * keys),
               values = channels.slice_cols(0, inner);
  const auto [input, first_norm] = input_of(backend, b, norm_out);
  backend.norm_matmul(columns, input, norm_out, first_norm, b.w_in);
  scale_columns(b, backend, columns);
  backend.short_conv({.x = channels,
                      .weight = b.conv,
                      .bias = b.conv_bias,
                      .states = b.states,
                      .buffer = b.first_state});
  backend.ssm_scan({.y = values,
                    .x = values,
                    .b = channels.slice_cols(inner, keys),
                    .c = channels.slice_cols(inner + keys, keys),
                    .dt = columns.slice_cols(2 * inner + 2 * keys, b.n_heads),
                    .keep = backend.token_rows(b.keep),
                    .decay = b.decay,
                    .dt_bias = b.dt_bias,
                    .skip = b.skip,
                    .n_groups = b.n_groups,
                    .min_step = b.min_step,
                    .max_step = b.max_step,
                    .states = b.states,
                    .buffer = b.first_state + 1});
  const Tensor gated = b.value_norm.weight ? backend.token_rows(b.gated) : values;
  if (b.value_norm.weight)
    backend.gated_norm(gated, values, gates, b.value_norm);
  else
    backend.act_mul(values, gates, values, Activation::kSilu);
  join(backend, b.join, x, backend.token_rows(b.branch), gated, b.wo, {}, norm_out);
}

}  // namespace ingot
