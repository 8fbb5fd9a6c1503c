#include "backend/blocks/layer_inputs.h"

#include "backend/backend.h"

namespace ingot {

void LayerInputsBlock::lay_out(Buffers& buffers) { buffers.scratch_f32(rows, int64_t{n_layers} * width); }

void run_block(const LayerInputsBlock& b, Backend& backend) {
  const Tensor x = backend.token_rows(b.x), inputs = backend.token_rows(b.layer_inputs),
               rows = backend.token_rows(b.rows);
  backend.matmul(inputs, x, b.project);
  backend.scale(inputs, b.project_scale, 0);
  const Tensor of_layers = inputs.reshape(inputs.rows * b.n_layers, b.width);
  backend.norm(of_layers, of_layers, b.norm);
  backend.embed(rows, b.table, b.table_scale);
  backend.add(inputs, rows);
  backend.scale(inputs, b.scale, 0);
}

}  // namespace ingot
