// A gated short convolution (LFM2): a product with one gate, a convolution along each channel, a product with another.
#pragma once
#include "backend/block.h"
#include "backend/blocks/join.h"

namespace ingot {

struct ShortConvBlock {
  Tensor x;                  // in, out: [max_tokens, dim]
  NormArgs norm;             // weight [1, dim]
  bool follows_sum = false;  // as in AttentionBlock
  bool beside = false;       // the input is the fork, not x
  Tensor fork;               // [max_tokens, dim], the program's
  Weight w_in;               // [3 * n_channels, dim]: the gate of the inputs, the gate of the outputs, the inputs
  Tensor conv;               // [n_channels, width]
  Weight wo;                 // [dim, n_channels]
  int n_channels = 0;
  StateCache* states = nullptr;
  int first_state = 0;  // buffer: the inputs of the convolution, after their gate
  Join join;
  Tensor normed;           // as in AttentionBlock
  Tensor columns, branch;  // scratch; columns: the outputs of w_in
  void lay_out(Buffers& buffers);
};
void run_block(const ShortConvBlock& b, Backend& backend);

}  // namespace ingot
