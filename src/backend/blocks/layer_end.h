// The end of a layer: the layer's own input for each token joins the residual stream, and a factor scales the stream.
#pragma once
#include "backend/block.h"

namespace ingot {

struct LayerEndBlock {
  Tensor x;                   // in, out: [max_tokens, dim]
  Tensor layer_inputs;        // [max_tokens, n_layers * width], the program's (LayerInputsBlock); empty: none
  int width = 0, layer = 0;   // the layer's columns begin at layer * width; width 0: the layer has no input
  Weight w_gate;              // [width, dim] or empty
  Weight w_out;               // [dim, width] or empty
  NormArgs post_norm;         // weight [1, dim]
  Activation act = Activation::kGeluTanh;
  float scale = 1;
  Tensor gate, branch;        // scratch
  void lay_out(Buffers& buffers);
};
// x += post_norm((act(x w_gate^T) * input) w_out^T), then x *= scale
void run_block(const LayerEndBlock& b, Backend& backend);

}  // namespace ingot
