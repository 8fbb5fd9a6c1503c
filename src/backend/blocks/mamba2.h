// Mamba-2 (arXiv:2405.21060): each head has a state matrix that decays by one factor a token.
#pragma once
#include <array>

#include "backend/block.h"
#include "backend/blocks/join.h"

namespace ingot {

struct Mamba2Block {
  Tensor x;                     // in, out: [max_tokens, dim]
  NormArgs norm;                // weight [1, dim]
  bool follows_sum = false;     // as in AttentionBlock
  bool beside = false;          // the input is the fork, not x
  Tensor fork;                  // [max_tokens, dim], the program's
  Weight w_in;                  // [2 * inner + 2 * keys + n_heads, dim]: gates, x, b, c, dt
  Tensor conv;                  // [inner + 2 * keys, width]: of x, b and c
  Tensor conv_bias;             // [1, inner + 2 * keys] or empty
  Tensor decay, dt_bias, skip;  // n_heads elements each
  NormArgs value_norm;          // weight [n_groups, inner / n_groups] or empty
  std::array<float, 5> column_factors = {1, 1, 1, 1, 1};  // of the outputs of w_in: gates, x, b, c, dt
  Weight wo;                    // [dim, inner]
  int n_heads = 0, head_dim = 0, n_groups = 1, state_dim = 0;
  float min_step = 0, max_step = 0;  // as in SsmScanArgs
  StateCache* states = nullptr;
  int first_state = 0;  // buffers: the inputs of the convolution, the heads' matrices
  Join join;
  Tensor normed;                        // as in AttentionBlock
  Tensor columns, keep, gated, branch;  // scratch; columns: the outputs of w_in; gated: [max_tokens, inner]
  int64_t inner() const { return int64_t{n_heads} * head_dim; }
  int64_t keys() const { return int64_t{n_groups} * state_dim; }
  std::array<int64_t, 5> columns_of_w_in() const { return {inner(), inner(), keys(), keys(), n_heads}; }
  void lay_out(Buffers& buffers);
};
void run_block(const Mamba2Block& b, Backend& backend);

}  // namespace ingot
