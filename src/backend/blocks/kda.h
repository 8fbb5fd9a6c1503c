// Kimi's delta attention (arXiv:2510.26692): a delta net whose state decays by a factor for each row of a matrix.
#pragma once
#include "backend/block.h"
#include "backend/blocks/join.h"
#include "backend/blocks/low_rank.h"

namespace ingot {

struct KdaBlock {
  Tensor x;                      // in, out: [max_tokens, dim]
  NormArgs norm;                 // weight [1, dim]
  bool follows_sum = false;      // as in AttentionBlock
  bool beside = false;           // the input is the fork, not x
  Tensor fork;                   // [max_tokens, dim], the program's
  Weight wq, wk, wv;             // [keys, dim], where keys = n_heads * head_dim
  Tensor conv_q, conv_k, conv_v;  // [keys, width]
  Weight w_beta;                 // [n_heads, dim]
  LowRank rates, gate;           // [rank, dim] and [keys, rank], without a bias
  Tensor decay;                  // n_heads elements
  Tensor dt;                     // [1, keys]
  NormArgs value_norm;           // weight [1, head_dim]
  Weight wo;                     // [dim, keys]
  int n_heads = 0, head_dim = 0, rank = 0;
  StateCache* states = nullptr;
  int first_state = 0;  // buffers: the inputs of the three convolutions, the heads' matrices
  Join join;
  Tensor normed;                                                  // as in AttentionBlock
  Tensor qkv, beta, low, keep, a, b, gates, read, branch;         // scratch
  int64_t keys() const { return int64_t{n_heads} * head_dim; }
  void lay_out(Buffers& buffers);
};
void run_block(const KdaBlock& b, Backend& backend);

}  // namespace ingot
