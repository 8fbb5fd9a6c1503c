#include "backend/blocks/layer_end.h"

#include "backend/backend.h"

namespace ingot {

void LayerEndBlock::lay_out(Buffers& buffers) {
  if (width == 0) return;
  buffers.scratch_f32(gate, width);
  buffers.scratch_f32(branch, x.cols);
}

void run_block(const LayerEndBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x);
  if (b.width > 0) {
    const Tensor gate = backend.token_rows(b.gate), branch = backend.token_rows(b.branch);
    backend.matmul(gate, x, b.w_gate);
    backend.act_mul(gate, gate, backend.token_rows(b.layer_inputs).slice_cols(int64_t{b.layer} * b.width, b.width),
                    b.act);
    backend.matmul(branch, gate, b.w_out);
    backend.add_normed(x, branch, b.post_norm, b.scale);
  } else if (b.scale != 1) {
    backend.scale(x, b.scale, 0);
  }
}

}  // namespace ingot
