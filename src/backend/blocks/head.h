// The head: computes logits for the rows of the batch in logit_rows.
#pragma once
#include "backend/block.h"

namespace ingot {

struct HeadBlock {
  Tensor x;                      // [max_tokens, dim]
  NormArgs norm;                 // weight [1, dim]
  Weight output;                 // [n_vocab, dim]
  Tensor bias;                   // [1, n_vocab] or empty
  float scale = 1, softcap = 0;  // scale and softcap of the logits; softcap 0: none
  int n_vocab = 0;
  // With several ranks, each has the logits of `rank_vocab` neighbouring tokens; the last rank has the rest.
  int n_ranks = 1, rank_vocab = 0;
  Tensor logits;                           // out: [max_logits, n_vocab]
  Tensor selected, normed, own, gathered;  // scratch; own and gathered: [1 | n_ranks * max_logits, rank_vocab]
  void lay_out(Buffers& buffers);
};
void run_block(const HeadBlock& b, Backend& backend);

}  // namespace ingot
