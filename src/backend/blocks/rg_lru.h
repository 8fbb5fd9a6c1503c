// The recurrent mixer of Griffin (arXiv:2402.19427): channels with a decay that a gate chooses for each token (RG-LRU),
// beside a branch without recurrence.
#pragma once
#include "backend/block.h"
#include "backend/blocks/join.h"

namespace ingot {

struct RgLruBlock {
  Tensor x;                  // in, out: [max_tokens, dim]
  NormArgs norm;             // weight [1, dim]
  bool follows_sum = false;  // as in AttentionBlock
  bool beside = false;       // the input is the fork, not x
  Tensor fork;               // [max_tokens, dim], the program's
  Weight w_y, w_x;           // [width, dim]: the branch without recurrence, and with it
  Tensor b_y, b_x;           // [1, width] or empty
  Tensor conv, conv_bias;    // [width, conv_width]; [1, width] or empty
  Weight w_input_gate, w_decay_gate;  // n_heads matrices [head_dim, head_dim]
  Tensor b_input_gate, b_decay_gate;  // [n_heads, head_dim]
  Tensor decay;              // [1, width]: before softplus
  Weight wo;                 // [dim, width]
  Tensor bo;                 // [1, dim] or empty
  int n_heads = 0, head_dim = 0;
  int n_ids = 0;  // of head_ids: n_heads
  StateCache* states = nullptr;
  int first_state = 0;  // buffers: the inputs of the convolution, the channels' states
  Join join;
  Tensor normed;    // as in AttentionBlock
  Tensor head_ids;  // [max_tokens, n_heads], shared by the program: head h is expert h in moe_matmul
  Tensor channels, gated, input_gates, decay_gates, branch;  // scratch
  int64_t width() const { return int64_t{n_heads} * head_dim; }
  void lay_out(Buffers& buffers);
};
void run_block(const RgLruBlock& b, Backend& backend);

}  // namespace ingot
