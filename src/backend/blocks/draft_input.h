// The input of a draft head, which guesses the token after the next: the next token's embedding and the hidden state of
// the row, both normed, side by side. For multi-token prediction (arXiv:2412.19437, 2.2), a projection of the pair
// becomes the residual stream. For EAGLE-3 (arXiv:2503.01840), the hidden state becomes the residual stream, and the
// attention that follows reads the pair.
#pragma once
#include "backend/block.h"

namespace ingot {

struct DraftInputBlock {
  Tensor x;                   // in, out: [max_tokens, dim]
  Tensor hidden;              // [max_tokens, n] of another program, or empty: x itself is the hidden state
  Tensor source;              // [n_rows, n] or empty: row logit_rows[t] is first copied to row t of `hidden`
  Weight table;               // [n_vocab, dim]
  float scale = 1;            // of embeddings
  NormArgs final_norm;        // of the program that computed the hidden state; empty weight: none
  NormArgs token_norm;        // weight [1, dim]: of embeddings
  NormArgs hidden_norm;       // weight [1, dim]
  Weight project;             // [dim, 2 * dim]; with reads_pair [dim, n] or empty: computes x from the hidden state
  bool hidden_first = false;  // the order of the pair
  bool reads_pair = false;    // the attention that follows reads the pair
  bool keeps_normed = false;  // with reads_pair: x becomes the normed hidden state
  Tensor pair;                // out: [max_tokens, 2 * dim], the program's
  Tensor embedded, normed;    // scratch
  void lay_out(Buffers& buffers);
};
void run_block(const DraftInputBlock& b, Backend& backend);

}  // namespace ingot
