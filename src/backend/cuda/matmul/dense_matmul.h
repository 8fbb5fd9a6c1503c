// DenseMatmul: y = x w^T with cuBLASLt. The algorithm that cuBLASLt recommends for a shape is cached for later steps.
// Steps have any number of rows, so there are many shapes, and only the most recently used ones stay cached.
#pragma once
#include <memory>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/matmul/float8.h"
#include "backend/tensor.h"

namespace ingot::cuda {

class DenseMatmul {
 public:
  explicit DenseMatmul(const Device& device);  // the device must outlive it
  ~DenseMatmul();
  DenseMatmul(const DenseMatmul&) = delete;
  DenseMatmul& operator=(const DenseMatmul&) = delete;

  // y = alpha * x w^T + bias, or with `accumulate` y += alpha * x w^T + bias. x: [n, n_in] and w: [n_out, n_in] have
  // contiguous rows and the same type; y: [n, n_out] has that type or f32. bias: [n_out] or null, only with y in f32.
  // Returns false, and does nothing, if cuBLASLt has no kernel for these sizes and alignments.
  bool run(const Tensor& y, const Tensor& x, const void* w, float alpha, bool accumulate, Device& device,
           const float* bias = nullptr);
  // The same with 8-bit floats: y is f16 or f32. The sums must not overflow the type of y.
  bool run_float8(const Tensor& y, const Float8Rows& x, const PackedWeight& w, bool accumulate, Device& device);

 private:
  class Plans;  // only dense_matmul.cc needs the library's header
  std::unique_ptr<Plans> plans_;
};

}  // namespace ingot::cuda
