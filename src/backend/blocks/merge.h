// The projector at the end of a vision tower: neighbouring patches become one row, which one or two matrices turn into
// a vector of the text model. The rows of a group of patches are neighbours in the batch.
#pragma once
#include "backend/block.h"

namespace ingot {

struct MergeBlock {
  Tensor x;               // [max_tokens, dim], unchanged
  NormArgs norm;          // of x; weight [1, dim] or empty
  int n_merged = 1;       // patches in a group
  bool averages = false;  // the row of a group is the mean of its patches; otherwise their vectors side by side
  float scale = 1;        // of the rows of groups
  Tensor shift, factors;  // [1, row width] or empty: then (rows + shift) * factors
  NormArgs merged_norm;   // then, of the rows of groups; weight [1, row width] or empty
  bool normalizes = false;  // merged_norm has no weight
  Weight w1;                // [hidden or out_dim, row width]
  Tensor b1;                // [1, rows of w1] or empty
  Activation act = Activation::kGelu;
  Weight w2;                      // [out_dim, hidden] or empty: w1 is the only matrix
  Tensor b2;                      // [1, out_dim] or empty
  Tensor out;                     // out: [max_tokens / n_merged, out_dim], kept after the step
  Tensor normed, merged, hidden;  // scratch
  int64_t row_width() const { return averages ? x.cols : x.cols * n_merged; }
  void lay_out(Buffers& buffers);
};
void run_block(const MergeBlock& b, Backend& backend);

}  // namespace ingot
