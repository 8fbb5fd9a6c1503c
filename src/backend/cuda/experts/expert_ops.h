// ExpertOps: the ops of models with experts. If there are few rows, each row reads the matrix of its expert separately.
// More rows are sorted by expert first, so that a matrix is read once for many rows. The choice depends only on the
// number of rows and on the weights, so a step can be recorded.
#pragma once
#include "backend/cuda/core.h"
#include "backend/cuda/experts/experts.h"
#include "backend/cuda/matmul/products.h"

namespace ingot::cuda {

class ExpertOps {
 public:
  ExpertOps(Core& core, DeviceWeights& weights, KernelChoice& choice, Products& products)
      : core_(core), weights_(weights), choice_(choice), products_(products) {}

  void route_logits(const Tensor& ids, const Tensor& weights, const Tensor& logits, const RouteArgs& args);
  void matmul(const Tensor& y, const Tensor& x, const Weight& w, const Tensor& ids, const Tensor& bias);
  void combine(const Tensor& residual, const Tensor& y, const Tensor& weights);
  // Returns false, and does nothing, if no kernel multiplies these experts.
  bool run(const MoeArgs& args);

 private:
  bool route(const MoeArgs& args, const ExpertTiling& tiling);
  bool takes_rows(const ExpertMatmul& m) const;
  ExpertOrder order_of(int64_t n_rows, int64_t n_own, const ExpertTiling& tiling);
  void order_rows(const ExpertMatmul& m);
  bool groups_experts(const PackedWeight& w) const;
  bool streams_experts(const PackedWeight& w) const;
  void launch_tiles(ExpertMatmul m);

  Core& core_;
  Device& device_ = core_.device;
  DeviceWeights& weights_;
  KernelChoice& choice_;
  Products& products_;
};

}  // namespace ingot::cuda
