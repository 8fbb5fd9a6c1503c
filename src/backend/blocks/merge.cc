#include "backend/blocks/merge.h"

#include <algorithm>

#include "backend/backend.h"

namespace ingot {

void MergeBlock::lay_out(Buffers& buffers) {
  const int64_t n = (buffers.limits().max_tokens + n_merged - 1) / n_merged;
  buffers.scratch(normed, buffers.act(), n * n_merged, x.cols);
  buffers.scratch(merged, buffers.act(), n, row_width());
  buffers.scratch(hidden, buffers.act(), n, w1.n_out);
  if (is_gated) buffers.scratch(gated, buffers.act(), n, w2.n_in);
  buffers.widest(std::max({row_width(), w1.n_out, w2.n_out}));
  buffers.keep(out, DType::kF32, n, w2 ? w2.n_out : w1.n_out);
}

void run_block(const MergeBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x);
  const int64_t n = (x.rows + b.n_merged - 1) / b.n_merged;
  const Tensor out = b.out.slice_rows(0, n), hidden = b.hidden.slice_rows(0, n), merged = b.merged.slice_rows(0, n);
  Tensor rows = b.normed.slice_rows(0, n * b.n_merged);
  const Tensor filled = rows.slice_rows(0, x.rows);
  b.norm.weight ? backend.norm(filled, x, b.norm) : backend.copy(filled, x);
  if (rows.rows > x.rows) backend.zero(rows.slice_rows(x.rows, rows.rows - x.rows));
  if (b.averages) {
    backend.mean_rows(merged, rows);
    rows = merged;
  } else {
    rows = rows.reshape(n, b.row_width());
  }
  if (b.scale != 1) backend.scale(rows, b.scale, 0);
  if (b.shift) {
    backend.add_positions(rows, b.shift);
    backend.scale_groups(rows, b.factors, GroupFactor::kAsIs);
  }
  if (b.merged_norm.weight || b.normalizes) {
    backend.norm(merged, rows, b.merged_norm);
    rows = merged;
  }
  if (!b.w2) return backend.matmul(out, rows, b.w1, b.b1);
  backend.matmul(hidden, rows, b.w1);
  if (!b.is_gated) {
    backend.act(hidden, b.act, b.b1);
    return backend.matmul(out, hidden, b.w2, b.b2);
  }
  const Tensor gated = b.gated.slice_rows(0, n);
  backend.act_mul(gated, hidden.slice_cols(gated.cols, gated.cols), hidden.slice_cols(0, gated.cols), b.act);
  backend.norm(gated, gated, b.gated_norm);
  backend.matmul(out, gated, b.w2, b.b2);
}

}  // namespace ingot
