// The end of a model that outputs vectors: x is normalised in place, and the rows of each sequence become one row.
#pragma once
#include "backend/block.h"

namespace ingot {

struct PoolBlock {
  Tensor x;           // in, out: [max_tokens, dim]
  NormArgs norm;      // weight [1, dim] or empty
  bool pools = true;  // false: the output is the vectors of all tokens
  Pooling pooling = Pooling::kMean;
  Tensor pooled;  // out: [max_seqs, dim]
  void lay_out(Buffers& buffers);
};
void run_block(const PoolBlock& b, Backend& backend);

}  // namespace ingot
