// A feed-forward and a mixture of experts that read the same stream. Each has norms of its own; a last norm is of their
// sum. The router reads the stream through a norm that neither of them has.
#pragma once
#include "backend/blocks/experts.h"
#include "backend/blocks/feed_forward.h"

namespace ingot {

struct DenseExpertsBlock {
  Tensor x;                  // in, out: [max_tokens, dim]
  FeedForwardBlock dense;    // its norm, weights and sizes
  ExpertsBlock experts;      // the same
  NormArgs dense_post_norm, experts_post_norm, router_norm;  // weights [1, dim]
  Join join;                 // with the norm of the sum
  Tensor normed;             // as in AttentionBlock
  Tensor router_rows;        // scratch
  void lay_out(Buffers& buffers);
};
void run_block(const DenseExpertsBlock& b, Backend& backend);

}  // namespace ingot
