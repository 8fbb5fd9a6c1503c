#include "backend/blocks/deepstack.h"

#include "backend/backend.h"

namespace ingot {

void run_block(const DeepstackBlock& b, Backend& backend) {
  if (backend.batch().embeddings.empty()) return;
  const Tensor x = backend.token_rows(b.x), added = backend.token_rows(b.added);
  for_embedding_runs(backend.batch(), x.cols, b.part, b.n_parts, [&](int64_t first, int64_t n, const float* rows) {
    const Tensor to = added.slice_rows(first, n);
    backend.upload(to, rows);
    backend.add(x.slice_rows(first, n), to);
  });
}

}  // namespace ingot
