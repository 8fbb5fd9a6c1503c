#include "backend/cuda/attention/attention_ops.h"

#include "backend/cuda/attention/kv_cache.h"
#include "backend/cuda/matmul/matmul_kernels.h"

namespace ingot::cuda {

void AttentionOps::write(KvCache& kv, int layer, const Tensor& k, const Tensor& v) {
  write_kv(view_of(kv), layer, k, v, core_.step.view_of_writes(kv), core_.device);
  check_launch("write_kv");
}

void AttentionOps::attend(const Tensor& y, const Tensor& q, const KvCache& kv, const AttentionArgs& of_layer,
                          bool rounds) {
  AttentionArgs args = of_layer;
  if (kv.shape.of_source) args.causal = false, args.window = 0;
  const DeviceKv cache = view_of(kv);
  const DeviceLimits& limits = core_.device.limits();
  const bool sees_later = args.causal && args.sees_later && core_.step.view().seen_len != nullptr;
  if (core_.act == DType::kF16 && !sees_later && can_attend(cache, args, limits)) {
    AttentionPlan plan = plan_attention(cache, args, core_.step.attention(kv, core_.deterministic), limits);
    plan.rounds = rounds && y.rows > kFewRowsOfHalves;
    if (plan.part_bytes > 0) plan.parts = core_.memory.scratch(Scratch::kPartials, plan.part_bytes);
    cuda::attend(y, core_.in_act_dtype(q), cache, args, core_.step.view(kv), plan, core_.device);
  } else {
    attend_naive(y, q, cache, args, core_.step.view(kv), core_.device, core_.deterministic);
  }
  check_launch("attend");
}

}  // namespace ingot::cuda
