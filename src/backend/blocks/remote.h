// Blocks of the model that other devices compute. The residual stream is copied to them and back through host memory.
#pragma once
#include <functional>

#include "backend/batch.h"
#include "backend/block.h"

namespace ingot {

struct RemoteBlock {
  Tensor x;             // in, out: [max_tokens, dim]
  bool reads_x = true;  // false: the first of the blocks is the embedding, which only writes x
  // Runs the blocks on the batch. `rows` is in host memory. Set before the program is allocated.
  std::function<void(const Batch& batch, float* rows /* in, out [n_tokens, dim] */)> run;
  void lay_out(Buffers&) {}
};
void run_block(const RemoteBlock& b, Backend& backend);

}  // namespace ingot
