// The feed-forward of RWKV-7: its input is a mix of a token with the token before it.
#pragma once
#include "backend/block.h"
#include "backend/blocks/join.h"

namespace ingot {

struct ChannelMixBlock {
  Tensor x;                  // in, out: [max_tokens, dim]
  NormArgs norm;             // weight and bias [1, dim]
  bool follows_sum = false;  // as in AttentionBlock
  bool beside = false;       // the input is the fork, not x
  Tensor fork;               // [max_tokens, dim], the program's
  Tensor mix;                // [1, dim]
  Weight w_up;               // [ffn, dim]
  Weight w_down;             // [dim, ffn]
  Activation act = Activation::kSquaredRelu;
  int ffn_dim = 0;
  StateCache* states = nullptr;
  int first_state = 0;  // buffer: the last token
  Join join;
  Tensor normed;                 // as in AttentionBlock
  Tensor mixed, hidden, branch;  // scratch
  void lay_out(Buffers& buffers);
};
void run_block(const ChannelMixBlock& b, Backend& backend);

}  // namespace ingot
