// Products: y = x w^T for the weights of a CudaBackend. A product of a single row also computes the norm of its input,
// which saves a launch.
#pragma once
#include <optional>
#include <span>

#include "backend/cuda/core.h"
#include "backend/cuda/device_weights.h"
#include "backend/cuda/matmul/dense_matmul.h"
#include "backend/cuda/matmul/float8.h"
#include "backend/cuda/matmul/kernel_choice.h"
#include "backend/ops.h"

namespace ingot::cuda {

class Products {
 public:
  // The input of products: x, or the norm of x. The norm has been written by a kernel, or the first product computes
  // it.
  struct Input {
    Tensor x;
    std::optional<DeferredNorm> norm = {};
    std::optional<Float8Rows> float8 = {};  // x as 8-bit floats, from the previous product
  };

  Products(Core& core, DeviceWeights& weights, KernelChoice& choice)
      : core_(core), weights_(weights), choice_(choice), dense_(core.device) {}

  Input input_of(const Tensor& x, const Tensor& normed, const NormArgs& norm, const Weight& w);
  // y = x w^T + bias, or y += x w^T + bias.
  void run(const Tensor& y, Input& input, const Weight& w, Tensor bias, bool accumulate);
  void run(const Tensor& y, const Tensor& x, const Weight& w, const Tensor& bias);
  void run_all(std::span<const Product> all);
  void gate_up(const GateUpArgs& args);
  // Returns false, and does nothing, if no kernel finishes these heads.
  bool qkv(const QkvArgs& args);

  void time_kernels(int64_t most_rows);  // time_products.cc; uses the scratch that was reserved
  DenseMatmul& dense() { return dense_; }

 private:
  bool norm_quantized(Input& input, const Tensor& x, const NormArgs& norm, const Weight& w);
  bool rounds_input(const Weight& w, int64_t n);
  void launch(const MatmulKernel& kernel, Matvec m, Input& input);
  void decoded_product(const Tensor& y, const Tensor& x, const PackedWeight& w, bool accumulate);
  bool library_product(const Tensor& y, Input& input, const PackedWeight& w, const MatmulKernel& kernel,
                       Tensor& bias, bool accumulate);
  bool float8_product(const Tensor& y, Input& input, const PackedWeight& w, bool accumulate);
  void quantize(Input& input, bool whole_rows);
  // several_products.cc
  std::optional<Tensor> joined_product(Input& input, std::span<const Weight* const> weights);
  bool can_run_side_by_side(const Input& input, std::span<const Weight* const> weights);
  void products(std::span<const Tensor> y, Input& input, std::span<const Weight* const> weights);
  std::vector<Product> run_together(std::span<const Product> all);
  void run_neighbours(std::span<const Product> all, Input& input);
  size_t run_side_by_side(std::span<const Product> all, Input& input);
  bool qkv_in_one_launch(const QkvArgs& args, Input& input);
  // time_products.cc
  double time_kernel(const MatmulKernel& kernel, const std::vector<const Weight*>& weights, int64_t rows);

  Core& core_;
  Device& device_ = core_.device;
  DeviceWeights& weights_;
  KernelChoice& choice_;
  DenseMatmul dense_;
};

}  // namespace ingot::cuda
