// Copies the residual stream for blocks that read the same input as the block after this one (LayerPart::beside in
// model/config/config.h).
#pragma once
#include "backend/block.h"

namespace ingot {

struct ForkBlock {
  Tensor x;     // [max_tokens, dim]
  Tensor fork;  // out: [max_tokens, dim], the program's
  void lay_out(Buffers&) {}
};
void run_block(const ForkBlock& b, Backend& backend);

}  // namespace ingot
