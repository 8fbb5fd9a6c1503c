#include "backend/blocks/pool.h"

#include "backend/backend.h"

namespace ingot {

void PoolBlock::lay_out(Buffers& buffers) {
  if (pools) buffers.keep(pooled, DType::kF32, buffers.limits().max_seqs, x.cols);
}

void run_block(const PoolBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x);
  if (b.norm.weight) backend.norm(x, x, b.norm);
  if (b.pools) backend.pool(b.pooled.slice_rows(0, backend.size().n_seqs), x, b.pooling);
}

}  // namespace ingot
