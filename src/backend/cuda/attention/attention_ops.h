// AttentionOps: the ops of attention on the current step.
#pragma once
#include "backend/cuda/core.h"
#include "backend/ops.h"

namespace ingot::cuda {

class AttentionOps {
 public:
  explicit AttentionOps(Core& core) : core_(core) {}

  void write(KvCache& kv, int layer, const Tensor& k, const Tensor& v);
  // rounds: y may have 8 bits of precision, if it has many rows.
  void attend(const Tensor& y, const Tensor& q, const KvCache& kv, const AttentionArgs& args, bool rounds);

 private:
  Core& core_;
};

}  // namespace ingot::cuda
