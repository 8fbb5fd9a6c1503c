// A learned residual of low rank beside attention (LAuReL, arXiv:2411.07501, as in Gemma 3n).
#pragma once
#include "backend/block.h"

namespace ingot {

struct LaurelBlock {
  Tensor x;                // in, out: [max_tokens, dim]
  NormArgs norm;           // weight [1, dim]
  bool beside = true;      // the input is the fork
  Tensor fork;             // [max_tokens, dim], the program's
  Weight w_left;           // [rank, dim]
  Weight w_right;          // [dim, rank]
  NormArgs post_norm;      // weight [1, dim]
  int rank = 0;
  Tensor low, branch, in;  // scratch
  void lay_out(Buffers& buffers);
};
// x = (x + n + post_norm((n w_left^T) w_right^T)) / sqrt(2), where n = norm(fork)
void run_block(const LaurelBlock& b, Backend& backend);

}  // namespace ingot
