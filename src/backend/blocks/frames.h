// The beginning of a speech encoder: frames of features become rows of the residual stream by two convolutions over
// three neighbouring frames, each with an activation; the second one moves by two frames. Then each row gets the vector
// of its position.
#pragma once
#include "backend/block.h"

namespace ingot {

struct FramesBlock {
  Tensor x;            // out: [max_tokens, dim]
  int n_features = 0;  // of a frame
  int n_rows = 0;      // of the stream for each window of 2 * n_rows frames; a window alone may have fewer
  Weight w1, w2;       // [dim, 3 * n_features], [dim, 3 * dim]: the earliest frame first
  Tensor b1, b2;       // [1, dim]
  Activation act = Activation::kGelu;
  Tensor positions;  // [n_rows, dim]
  // The batch's embeddings are the features of its windows, [n_seqs, 2 * n_rows, n_features]. Frames before and after a
  // window are zeros.
  Tensor frames, near, hidden, near_hidden;  // scratch
  void lay_out(Buffers& buffers);
};
void run_block(const FramesBlock& b, Backend& backend);

}  // namespace ingot
