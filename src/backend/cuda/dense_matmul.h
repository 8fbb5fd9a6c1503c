// DenseMatmul: y = x w^T through cuBLASLt, with the algorithm that it advises for each shape kept for the next time.
#pragma once
#include <cublasLt.h>

#include <map>
#include <tuple>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/memory.h"
#include "backend/tensor.h"

namespace ingot::cuda {

class DenseMatmul {
 public:
  DenseMatmul();
  ~DenseMatmul();
  DenseMatmul(const DenseMatmul&) = delete;
  DenseMatmul& operator=(const DenseMatmul&) = delete;

  // y = alpha * x w^T, or y += with accumulate. x: [n, n_in] and w: [n_out, n_in], contiguous rows, of one type; y: f32 or that type.
  // False, and nothing done, when cuBLASLt has no kernel for these sizes and alignments.
  bool run(const Tensor& y, const Tensor& x, const void* w, float alpha, bool accumulate, Device& device);
  size_t workspace_bytes() const { return workspace_.size(); }

 private:
  struct Plan {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algo;
    bool found = false;
  };
  // n, n_out, n_in, strides of x and y, types of x and y, alignments of w, x, y
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, DType, DType, int, int, int>;
  const Plan& plan_for(const Key& key);

  cublasLtHandle_t handle_ = nullptr;
  Memory workspace_;
  std::map<Key, Plan> plans_;
};

}  // namespace ingot::cuda
