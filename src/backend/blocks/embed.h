// The embedding: the residual stream begins as the vectors of the tokens.
#pragma once
#include "backend/block.h"

namespace ingot {

struct EmbedBlock {
  Tensor x;      // out: [max_tokens, dim]
  Weight table;  // [n_vocab, dim]
  float scale = 1;
  Tensor positions;    // [n_ctx, dim], [1, dim] or empty: added to each token
  Tensor second_type;  // [1, dim] or empty: added to the tokens of a pair's second text
  int n_embedding_parts = 1;  // dim columns each of the batch's embeddings; the first is the input (DeepstackBlock)
  NormArgs norm;       // empty weight: none
  bool normalizes = false;  // the norm has no weight
  void lay_out(Buffers&) {}
};
void run_block(const EmbedBlock& b, Backend& backend);

}  // namespace ingot
