// Mamba (arXiv:2312.00752): each channel has a state, each element of which decays by its own factor. Some families have
// norms of the inputs that the scan makes of its channels (FalconMamba, Jamba).
#pragma once
#include "backend/block.h"
#include "backend/blocks/join.h"

namespace ingot {

struct Mamba1Block {
  Tensor x;                        // in, out: [max_tokens, dim]
  NormArgs norm;                   // weight [1, dim]
  bool follows_sum = false;        // as in AttentionBlock
  bool beside = false;             // the input is the fork, not x
  Tensor fork;                     // [max_tokens, dim], the program's
  Weight w_in;                     // [2 * inner, dim]: channels, gates
  Tensor conv;                     // [inner, width]
  Tensor conv_bias;                // [1, inner] or empty
  Weight w_x;                      // [dt_rank + 2 * state_dim, inner]: dt, b, c
  bool has_norms = false;          // of dt, b and c
  NormArgs dt_norm, b_norm, c_norm;  // weight [1, dt_rank], [1, state_dim] twice, or empty
  Weight w_dt;                     // [inner, dt_rank]
  Tensor decay;                    // [inner, state_dim]
  Tensor dt_bias, skip;            // [1, inner]
  Weight wo;                       // [dim, inner]
  int inner = 0, state_dim = 0, dt_rank = 0;
  StateCache* states = nullptr;
  int first_state = 0;  // buffers: the inputs of the convolution, the channels' states
  Join join;
  Tensor normed;                                  // as in AttentionBlock
  Tensor columns, scan_inputs, dt, gated, branch;  // scratch: the outputs of w_in, w_x, w_dt, the scan; join's
  void lay_out(Buffers& buffers);
};
void run_block(const Mamba1Block& b, Backend& backend);

}  // namespace ingot
