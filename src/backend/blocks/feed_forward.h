// A feed-forward of two or three matrices.
#pragma once
#include <optional>

#include "backend/block.h"
#include "backend/blocks/join.h"

namespace ingot {

struct FeedForwardBlock {
  Tensor x;                  // in, out: [max_tokens, dim]
  NormArgs norm;             // weight [1, dim] or empty
  bool follows_sum = false;  // as in AttentionBlock
  bool beside = false;       // the input is the fork, not x
  Tensor fork;               // [max_tokens, dim], the program's
  Weight w_gate;             // [ffn, dim] or empty: hidden = act(up)
  Weight w_up;               // [ffn, dim]
  Weight w_down;             // [dim, ffn]
  Tensor b_gate, b_up;       // [1, ffn] or empty
  Tensor b_down;             // [1, dim] or empty
  Activation act = Activation::kSilu;
  bool has_xielu = false;
  Xielu xielu;  // in place of act
  // The gate keeps what is above a bound, less the bound: its row's mean and this many standard deviations of the row.
  // Nothing: the gate keeps all.
  std::optional<float> deviations;
  float gate_scale = 1;  // of the gate's product
  int ffn_dim = 0;
  Join join;
  Tensor normed;          // as in AttentionBlock
  Tensor hidden, up, branch;  // scratch
  // Whether one op makes gate and up.
  bool is_fused() const { return w_gate && !deviations && gate_scale == 1; }
  void lay_out(Buffers& buffers);
};
void run_block(const FeedForwardBlock& b, Backend& backend);

}  // namespace ingot
