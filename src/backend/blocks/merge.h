// The projector at the end of a tower: neighbouring patches of a picture, or neighbouring frames of a sound, become one
// row, which one or two matrices turn into a vector of the text model. The rows of a group are neighbours in the batch.
#pragma once
#include "backend/block.h"

namespace ingot {

struct MergeBlock {
  Tensor x;               // [max_tokens, dim], unchanged
  NormArgs norm;          // of x; weight [1, dim] or empty
  int n_merged = 1;       // rows in a group; a last group that is smaller is filled with zeros
  bool averages = false;  // the row of a group is the mean of its rows; otherwise their vectors side by side
  float scale = 1;        // of the rows of groups
  Tensor shift, factors;  // [1, row width] or empty: then (rows + shift) * factors
  NormArgs merged_norm;   // then, of the rows of groups; weight [1, row width] or empty
  bool normalizes = false;  // merged_norm has no weight
  Weight w1;                // [hidden or out_dim, row width]
  Tensor b1;                // [1, rows of w1] or empty
  Activation act = Activation::kGelu;
  bool is_gated = false;          // w1 has twice as many rows: the second half, with the activation, gates the first
  NormArgs gated_norm;            // then, of the product; weight [1, hidden]
  Weight w2;                      // [out_dim, hidden] or empty: w1 is the only matrix
  Tensor b2;                      // [1, out_dim] or empty
  Tensor out;                     // out: [max_tokens / n_merged rounded up, out_dim], kept after the step
  Tensor normed, merged, hidden, gated;  // scratch
  int64_t row_width() const { return averages ? x.cols : x.cols * n_merged; }
  void lay_out(Buffers& buffers);
};
void run_block(const MergeBlock& b, Backend& backend);

}  // namespace ingot
