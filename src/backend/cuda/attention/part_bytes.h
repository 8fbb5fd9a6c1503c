// The scratch of attention whose keys are divided among blocks: the parts of rows that are yet to be merged.
#pragma once
#include <cstddef>

namespace ingot::cuda {

// Bytes for all blocks that run at once, and some more, with 128 rows each. One sequence of many rows never needs more
// (splits_for in attend.cu).
inline size_t most_part_bytes(int head_dim, int n_multiprocessors) {
  return size_t{5} * 128 * static_cast<size_t>(n_multiprocessors) * static_cast<size_t>(head_dim + 2) * sizeof(float);
}

}  // namespace ingot::cuda
