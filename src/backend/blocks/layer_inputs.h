// The inputs that each layer has of its own: for each token, a row of a table, and a projection of the embedding.
#pragma once
#include "backend/block.h"

namespace ingot {

struct LayerInputsBlock {
  Tensor x;                   // [max_tokens, dim]: the embedding
  Tensor layer_inputs;        // out: [max_tokens, n_layers * width], the program's
  int width = 0, n_layers = 0;
  Weight table;               // [n_vocab, n_layers * width]
  Weight project;             // [n_layers * width, dim]
  NormArgs norm;              // weight [1, width]: of the projection, for each layer
  float table_scale = 1, project_scale = 1, scale = 1;
  Tensor rows;                // scratch
  void lay_out(Buffers& buffers);
};
// inputs = scale * (table_scale * table[token] + norm(project_scale * x project^T))
void run_block(const LayerInputsBlock& b, Backend& backend);

}  // namespace ingot
