// The mixer of RWKV-7 (arXiv:2503.14456): a delta rule whose state decays by a factor for each key, with a rate of
// learning for each. Its inputs are mixes of a token with the token before it. From the second layer on, values are
// mixed with those of the first layer.
#pragma once
#include "backend/block.h"
#include "backend/blocks/join.h"
#include "backend/blocks/low_rank.h"

namespace ingot {

struct Rwkv7Block {
  Tensor x;                  // in, out: [max_tokens, dim]
  NormArgs norm;             // weight and bias [1, dim]
  bool follows_sum = false;  // as in AttentionBlock
  bool beside = false;       // the input is the fork, not x
  Tensor fork;               // [max_tokens, dim], the program's
  Tensor streams;            // [max_tokens, dim], the program's: the values of the first layer
  Tensor mix;                // [6, dim]: for r, decay, k, v, rate and gate
  Weight wr, wk, wv;         // [dim, dim]
  LowRank decay, rate, value, gate;  // value: not used in the first layer; gate: without a bias
  Tensor k_k, k_a, r_k;      // [1, dim]
  NormArgs head_norm;        // weight and bias [1, dim]
  Weight wo;                 // [dim, dim]
  int n_heads = 0, head_dim = 0, ranks = 0;  // ranks: the sum of all
  bool is_first = false;     // of the layers
  StateCache* states = nullptr;
  int first_state = 0;       // buffers: the last token, the heads' matrices
  Join join;
  Tensor normed;                                                    // as in AttentionBlock
  Tensor mixed, low, r, k, v, keep, a, b, v_gate, gates, read, branch;  // scratch
  void lay_out(Buffers& buffers);
};
void run_block(const Rwkv7Block& b, Backend& backend);

}  // namespace ingot
