#include "backend/blocks/embed.h"

#include "backend/backend.h"

namespace ingot {

// Copies the vectors of the batch (PromptEmbedding) over the rows of their placeholder tokens.
static void put_embeddings(Backend& backend, const Tensor& x) {
  const std::span<const int32_t> rows = backend.batch().embedding_rows;
  for (size_t t = 0; t < rows.size();) {
    size_t n = 1;
    while (rows[t] >= 0 && t + n < rows.size() && rows[t + n] == rows[t] + static_cast<int32_t>(n)) ++n;
    if (rows[t] >= 0)
      backend.upload(x.slice_rows(static_cast<int64_t>(t), static_cast<int64_t>(n)),
                     backend.batch().embeddings.data() + rows[t] * x.cols);
    t += n;
  }
}

void run_block(const EmbedBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x);
  backend.embed(x, b.table, b.scale);
  if (!backend.batch().embeddings.empty()) put_embeddings(backend, x);
  if (b.positions) backend.add_positions(x, b.positions);
  if (b.second_type)
    for (const RowRange& rows : backend.batch().second_rows)
      backend.add_positions(x.slice_rows(rows.first, rows.n), b.second_type);
  if (b.norm.weight || b.normalizes) backend.norm(x, x, b.norm);
}

}  // namespace ingot
