// RecurrenceOps: the ops of recurrent layers, and the layout of their states: the buffers of a slot lie one after
// another. The last slot is for the sequences that pad a step.
#pragma once
#include <memory>

#include "backend/cuda/core.h"
#include "backend/ops.h"
#include "backend/state.h"

namespace ingot::cuda {

class RecurrenceOps {
 public:
  explicit RecurrenceOps(Core& core) : core_(core) {}

  static size_t state_bytes(const StateShape& shape);  // includes the slot to which padding writes
  std::unique_ptr<StateCache> make_states(const StateShape& shape);
  void gate(const Tensor& x, const Tensor& gate);
  void short_conv(const ShortConvArgs& args);
  void delta_rule(const DeltaRuleArgs& args);
  void ssm_scan(const SsmScanArgs& args);
  void selective_scan(const SelectiveScanArgs& args);
  void rg_lru(const RgLruArgs& args);
  void kda_inputs(const KdaInputsArgs& args);
  void rank_one_rule(const RankOneRuleArgs& args);
  void mix_tokens(const MixTokensArgs& args);
  void wkv7_inputs(const Wkv7InputsArgs& args);
  void wkv7_outputs(const Wkv7OutputsArgs& args, const Tensor& out);  // out: instead of y
  void wkv7(const Wkv7Args& args);

  Written written() const { return written_; }  // what a step writes

 private:
  Core& core_;
  Written written_{};
};

}  // namespace ingot::cuda
