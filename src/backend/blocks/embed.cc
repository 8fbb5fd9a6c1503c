#include "backend/blocks/embed.h"

#include "backend/backend.h"
#include "backend/blocks/deepstack.h"

namespace ingot {

// Copies the vectors of the batch (PromptEmbedding) over the rows of their placeholder tokens.
static void put_embeddings(Backend& backend, const Tensor& x, int n_parts) {
  for_embedding_runs(backend.batch(), x.cols, 0, n_parts, [&](int64_t first, int64_t n, const float* rows) {
    backend.upload(x.slice_rows(first, n), rows);
  });
}

void run_block(const EmbedBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x);
  backend.embed(x, b.table, b.scale);
  if (!backend.batch().embeddings.empty()) put_embeddings(backend, x, b.n_embedding_parts);
  if (b.positions) backend.add_positions(x, b.positions);
  if (b.second_type)
    for (const RowRange& rows : backend.batch().second_rows)
      backend.add_positions(x.slice_rows(rows.first, rows.n), b.second_type);
  if (b.norm.weight || b.normalizes) backend.norm(x, x, b.norm);
}

}  // namespace ingot
