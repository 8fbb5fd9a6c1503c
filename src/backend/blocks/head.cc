#include "backend/blocks/head.h"

#include <algorithm>

#include "backend/backend.h"

namespace ingot {

void HeadBlock::lay_out(Buffers& buffers) {
  const int64_t n_rows = buffers.limits().max_logits;
  buffers.keep(logits, DType::kF32, n_rows, n_vocab);
  buffers.scratch(selected, DType::kF32, n_rows, x.cols);
  buffers.scratch(normed, buffers.act(), n_rows, x.cols);
  if (n_ranks == 1) return;
  buffers.scratch(own, DType::kF32, n_rows, rank_vocab);
  buffers.scratch(gathered, DType::kF32, n_ranks * n_rows, rank_vocab);
}

// Joins each rank's part of the vocabulary to logits of all tokens.
static void gather_logits(Backend& backend, const HeadBlock& b, const Tensor& logits, const Tensor& own) {
  const Tensor all = b.gathered.slice_rows(0, b.n_ranks * own.rows);
  backend.all_gather(all, own);
  if (own.rows == 1) return backend.copy(logits, all.reshape(1, all.rows * all.cols).slice_cols(0, b.n_vocab));
  for (int64_t r = 0; r < b.n_ranks; ++r) {
    const int64_t first = r * b.rank_vocab, n = std::min<int64_t>(b.rank_vocab, b.n_vocab - first);
    backend.copy(logits.slice_cols(first, n), all.slice_rows(r * own.rows, own.rows).slice_cols(0, n));
  }
}

void run_block(const HeadBlock& b, Backend& backend) {
  const int n = backend.size().n_logits;
  if (n == 0) return;  // the chunk is not the last one of its prompt
  const Tensor selected = b.selected.slice_rows(0, n), logits = b.logits.slice_rows(0, n);
  const Tensor own = b.n_ranks > 1 ? b.own.slice_rows(0, n) : logits;
  backend.gather_rows(selected, backend.token_rows(b.x));
  backend.norm_matmul(own.slice_cols(0, b.output.n_out), selected, b.normed.slice_rows(0, n), b.norm, b.output,
                      b.bias);
  if (b.n_ranks > 1) gather_logits(backend, b, logits, own);
  if (b.scale != 1 || b.softcap > 0) backend.scale(logits, b.scale, b.softcap);
}

}  // namespace ingot
