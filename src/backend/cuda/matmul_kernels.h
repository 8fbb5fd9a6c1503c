// Which kernel a product goes to: a list in order, of which the first that can take it and wins there does. `ingot inspect --kernels` shows
// the choice for a model's matrices, and times it against the others.
#pragma once
#include <algorithm>
#include <span>

#include "backend/cuda/kernels.h"

namespace ingot::cuda {

struct MatmulKernel {
  const char* name;
  bool (*can)(const PackedWeight& w, int64_t rows);
  bool (*wins)(const PackedWeight& w, int64_t rows);  // where it can, on an H200 (docs/performance.md)
  // Several jobs, a gate, sums: all that a Matvec may ask. Null: plain products only, which are CudaBackend::product's.
  void (*run)(const Matvec& m, cudaStream_t stream);
  bool decodes = false;  // without `run`: whether it takes rows of halves of what are codes
};

std::span<const MatmulKernel> matmul_kernels();

// Rows of a slice of decoded weights, which stays in the L2 cache until the product reads it.
inline constexpr int64_t kDecodedBytes = 48 << 20;
inline int64_t decoded_rows(int64_t n_out, int64_t row_bytes) {
  return std::min(n_out, std::max<int64_t>(256, kDecodedBytes / row_bytes / 256 * 256));
}

// `alone`: the same for any number of rows, a row's numbers not depending on it.
const MatmulKernel& matmul_kernel_for(const PackedWeight& w, int64_t rows, bool alone);

}  // namespace ingot::cuda
