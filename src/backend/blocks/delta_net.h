// A gated delta net (arXiv:2412.06464): each head has a state matrix that every token changes.
#pragma once
#include "backend/block.h"
#include "backend/blocks/join.h"

namespace ingot {

struct DeltaBlock {
  Tensor x;                  // in, out: [max_tokens, dim]
  NormArgs norm;             // weight [1, dim]
  bool follows_sum = false;  // as in AttentionBlock
  bool beside = false;       // the input is the fork, not x
  Tensor fork;               // [max_tokens, dim], the program's
  Weight wq, wk, wv;         // [all_keys | all_keys | all_values, dim]
  Weight gate;               // [all_values, dim]
  Weight w_beta, w_alpha;    // [n_heads, dim]
  Tensor conv;               // [2 * all_keys + all_values, conv_width]; of q alone if conv_k and conv_v are set
  Tensor conv_k, conv_v;     // [all_keys | all_values, conv_width] or empty
  bool has_three_convs = false;
  Tensor decay, dt;          // [1, n_heads]
  NormArgs value_norm;       // weight [1, value_dim]
  Weight wo;                 // [dim, all_values]
  int n_key_heads = 0, n_heads = 0, key_dim = 0, value_dim = 0;
  bool tiled = false;  // as in DeltaRuleArgs
  float share = 1;     // as in DeltaRuleArgs
  StateCache* states = nullptr;
  int first_state = 0;  // buffers: the inputs of each convolution, the heads' matrices
  Join join;
  Tensor normed;                                      // as in AttentionBlock
  Tensor channels, gates, beta, alpha, read, branch;  // scratch; read: q times the state matrices
  void lay_out(Buffers& buffers);
};
void run_block(const DeltaBlock& b, Backend& backend);

}  // namespace ingot
