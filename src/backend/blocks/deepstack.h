// Deepstack (arXiv:2406.04334): vectors of an image that are added behind a layer, to the rows that the image's vectors
// began. They follow those vectors in the rows of Batch::embeddings.
#pragma once
#include <vector>

#include "backend/block.h"
#include "backend/buffers.h"

namespace ingot {

struct DeepstackBlock {
  Tensor x;         // in, out: [max_tokens, dim]
  int part = 0;     // columns [part * dim, (part + 1) * dim) of the batch's embeddings are added
  int n_parts = 1;  // of a row of the embeddings
  Tensor added;     // scratch: [max_tokens, dim]
  void lay_out(Buffers& buffers) { buffers.scratch_f32(added, x.cols); }
};
void run_block(const DeepstackBlock& b, Backend& backend);

// Calls f(first token, number of tokens, their rows [n, dim]) for each run of tokens whose input are successive rows of
// the batch's embeddings: for column `part` of `n_parts` columns of dim numbers.
template <class F>
void for_embedding_runs(const Batch& batch, int64_t dim, int part, int n_parts, F&& f) {
  const std::span<const int32_t> rows = batch.embedding_rows;
  std::vector<float> picked;
  for (size_t t = 0, n = 1; t < rows.size(); t += n) {
    n = 1;
    if (rows[t] < 0) continue;
    while (t + n < rows.size() && rows[t + n] == rows[t] + static_cast<int32_t>(n)) ++n;
    const float* first = batch.embeddings.data() + (int64_t{rows[t]} * n_parts + part) * dim;
    if (n_parts > 1) {
      picked.clear();
      for (size_t i = 0; i < n; ++i) {
        const float* row = first + static_cast<int64_t>(i) * n_parts * dim;
        picked.insert(picked.end(), row, row + dim);
      }
      first = picked.data();
    }
    f(static_cast<int64_t>(t), static_cast<int64_t>(n), first);
  }
}

}  // namespace ingot
