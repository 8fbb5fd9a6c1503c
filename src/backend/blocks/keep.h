// Copies the residual stream at a place between layers, for a draft head.
#pragma once
#include "backend/block.h"

namespace ingot {

struct KeepBlock {
  Tensor x;       // [max_tokens, dim]
  int place = 0;  // index among the program's kept streams
  Tensor kept;    // out: [max_tokens, n_kept * dim], the program's
  void lay_out(Buffers&) {}
};
void run_block(const KeepBlock& b, Backend& backend);

}  // namespace ingot
