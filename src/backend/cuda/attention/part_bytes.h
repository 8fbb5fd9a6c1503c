// The scratch of attention whose keys are divided among blocks: the parts of rows that are yet to be merged.
#pragma once
#include <cstddef>

namespace ingot::cuda {

// Most bytes of the parts of a step, in f32: for up to five blocks of 128 rows on each multiprocessor. The keys of one
// long sequence are divided among fewer blocks (splits_for in attend.cu). A step that needs more leaves keys undivided.
inline size_t most_part_bytes(int head_dim, int n_multiprocessors) {
  return size_t{5} * 128 * static_cast<size_t>(n_multiprocessors) * static_cast<size_t>(head_dim + 2) * sizeof(float);
}

}  // namespace ingot::cuda
