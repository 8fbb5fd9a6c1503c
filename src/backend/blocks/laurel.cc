#include "backend/blocks/laurel.h"

#include <cmath>

#include "backend/backend.h"

namespace ingot {

void LaurelBlock::lay_out(Buffers& buffers) {
  buffers.scratch_act(low, rank);
  buffers.scratch_f32(branch, x.cols);
  buffers.scratch_f32(in, x.cols);
}

void run_block(const LaurelBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x), in = backend.token_rows(b.in), low = backend.token_rows(b.low),
               branch = backend.token_rows(b.branch);
  backend.norm(in, backend.token_rows(b.fork), b.norm);
  backend.matmul(low, in, b.w_left);
  backend.matmul(branch, low, b.w_right);
  backend.add(x, in);
  backend.add_normed(x, branch, b.post_norm, std::sqrt(0.5f));
}

}  // namespace ingot
