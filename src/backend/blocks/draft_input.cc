#include "backend/blocks/draft_input.h"

#include <algorithm>

#include "backend/backend.h"

namespace ingot {

void DraftInputBlock::lay_out(Buffers& buffers) {
  buffers.scratch_f32(embedded, x.cols);
  buffers.scratch_f32(normed, std::max(2 * x.cols, hidden.cols));  // products may convert inputs of this width
}

void Backend::draft_input(const DraftInputBlock& b) {
  const Tensor x = token_rows(b.x), embedded = token_rows(b.embedded), pair = token_rows(b.pair);
  const Tensor first = pair.slice_cols(0, x.cols), second = pair.slice_cols(x.cols, x.cols);
  Tensor hidden = b.hidden ? token_rows(b.hidden) : x;
  if (b.reads_pair && b.hidden) {
    matmul(x, hidden, b.project);
    hidden = x;
  }
  if (b.final_norm.weight) {
    const Tensor normed = token_rows(b.normed).slice_cols(0, x.cols);
    norm(normed, hidden, b.final_norm);
    hidden = normed;
  }
  embed(embedded, b.table, b.scale);
  norm(b.hidden_first ? second : first, embedded, b.token_norm);
  norm(b.hidden_first ? first : second, hidden, b.hidden_norm);
  if (!b.reads_pair) matmul(x, pair, b.project);
  if (b.keeps_normed) norm(x, x, b.hidden_norm);
}

void run_block(const DraftInputBlock& b, Backend& backend) {
  if (b.source) backend.gather_rows(b.hidden.slice_rows(0, backend.size().n_logits), b.source);
  backend.draft_input(b);
}

}  // namespace ingot
