// DenseMatmul: y = x w^T with cuBLASLt. The algorithm that cuBLASLt recommends for a shape is cached for later steps.
// Steps have any number of rows, so there are many shapes, and only the most recently used ones stay cached.
#pragma once
#include <cublasLt.h>

#include <memory>
#include <tuple>
#include <type_traits>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/matmul/float8.h"
#include "backend/tensor.h"
#include "base/lru_map.h"

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
  static constexpr size_t kMaxPlans = 256;  // more than a model's matrices, each with several numbers of rows

  template <auto kDestroy>
  struct Destroy {
    template <class T>
    void operator()(T* made) const {
      kDestroy(made);
    }
  };
  using Operation = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>, Destroy<cublasLtMatmulDescDestroy>>;
  using Layout = std::unique_ptr<std::remove_pointer_t<cublasLtMatrixLayout_t>, Destroy<cublasLtMatrixLayoutDestroy>>;
  struct Plan {
    Operation operation;
    Layout a, b, c;
    cublasLtMatmulAlgo_t algo;
    bool found = false;
  };
  // The elements that share a scale. kRows: a row, in w and x. kColumns: 128 columns of a row, in w and x. kBlocks: 128
  // x 128 in w, 128 columns of a row in x.
  enum class Scales { kNone, kRows, kColumns, kBlocks };
  // n, n_out, n_in, strides of x and y, types of x and y, alignments of w, x, y, scales, whether there is a bias
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, DType, DType, int, int, int, Scales, bool>;
  const Plan& plan_for(const Key& key);
  void multiply(const Plan& plan, const Tensor& y, const void* x, const void* w, float alpha, bool accumulate,
                Device& device);
  static Layout layout(DType dtype, int64_t rows, int64_t cols, int64_t stride);

  cublasLtHandle_t handle_ = nullptr;
  const Device& device_;  // whose workspace is used
  LruMap<Key, Plan> plans_{kMaxPlans};
};

}  // namespace ingot::cuda
