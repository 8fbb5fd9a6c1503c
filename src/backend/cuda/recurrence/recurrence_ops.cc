#include "backend/cuda/recurrence/recurrence_ops.h"

#include "backend/cuda/recurrence/recurrence.h"
#include "base/error.h"

namespace ingot::cuda {
namespace {

constexpr int kMaxWhole = 64;  // longest sequence, in tokens, that a convolution does not cut

struct CudaStates : StateCache {
  CudaStates(const StateShape& s, Memory m) : StateCache(s), memory(std::move(m)) {}
  DeviceStates at(int buffer_index) const {
    int64_t first = 0;
    for (int i = 0; i < buffer_index; ++i) first += buffer(i).size();
    CHECK(buffer(buffer_index).dtype == DType::kF32);
    return {static_cast<float*>(memory.data()) + first, static_cast<int64_t>(shape.slot_bytes() / sizeof(float))};
  }
  Memory memory;
};

void check_key_dim(int64_t n) {
  if (n > kMaxKeyDim)
    throw Error("keys of {} elements are more than cuda supports ({}): use the device cpu", n, kMaxKeyDim);
}

}  // namespace

size_t RecurrenceOps::state_bytes(const StateShape& shape) {
  return static_cast<size_t>(shape.n_slots + 1) * shape.slot_bytes();
}

std::unique_ptr<StateCache> RecurrenceOps::make_states(const StateShape& shape) {
  Memory memory = core_.memory.allocate(state_bytes(shape));
  written_ = {memory.data(), memory.size()};  // a model has one state cache, and it lives as long as the model's steps
  return std::make_unique<CudaStates>(shape, std::move(memory));
}

void RecurrenceOps::gate(const Tensor& x, const Tensor& gate) {
  gate_rows(x, gate, core_.device);
  check_launch("gate_rows");
}

void RecurrenceOps::short_conv(const ShortConvArgs& args) {
  const Tensor &x = args.x, &weight = args.weight;
  const auto& states = static_cast<const CudaStates&>(*args.states);
  CHECK_EQ(states.buffer(args.buffer).size(), (weight.cols - 1) * x.cols);
  if (weight.cols > kMaxConvWidth)
    throw Error("a convolution over {} tokens is more than cuda supports ({}): use the device cpu", weight.cols,
                kMaxConvWidth);
  float* edges = nullptr;
  if (core_.step.max_q_len > kMaxWhole) {
    const int64_t floats =
        conv_edge_floats(x.cols, static_cast<int>(weight.cols), core_.step.n_tokens, core_.step.n_seqs);
    edges = static_cast<float*>(core_.memory.scratch(Scratch::kUp, static_cast<size_t>(floats) * sizeof(float)));
  }
  cuda::short_conv(args, states.at(args.buffer), core_.step.view(), core_.step.n_seqs, core_.step.max_q_len, edges,
                   core_.device);
  check_launch("short_conv");
}

void RecurrenceOps::delta_rule(const DeltaRuleArgs& args) {
  const auto& states = static_cast<const CudaStates&>(*args.states);
  const StateBuffer& s = states.buffer(args.buffer);
  CHECK_EQ(args.qkv.cols, 2 * args.n_key_heads * s.rows + s.count * s.cols);
  check_key_dim(s.rows);
  cuda::delta_rule(args, states.at(args.buffer), core_.step.view(), core_.step.n_seqs, core_.step.min_q_len,
                   core_.step.max_q_len, !core_.deterministic, core_.device);
  check_launch("delta_rule");
}

void RecurrenceOps::ssm_scan(const SsmScanArgs& args) {
  const auto& states = static_cast<const CudaStates&>(*args.states);
  const StateBuffer& s = states.buffer(args.buffer);
  CHECK_EQ(args.x.cols, s.count * s.cols);
  CHECK_EQ(args.b.cols, args.n_groups * s.rows);
  if (s.rows > kMaxStateDim)
    throw Error("states of {} rows are more than cuda supports ({}): use the device cpu", s.rows, kMaxStateDim);
  float* parts = nullptr;
  const int64_t floats = core_.deterministic ? 0
                                             : ssm_part_floats(core_.device, args, core_.step.n_tokens,
                                                               core_.step.n_seqs, core_.step.max_q_len);
  if (floats > 0)
    parts = static_cast<float*>(core_.memory.scratch(Scratch::kUp, static_cast<size_t>(floats) * sizeof(float)));
  cuda::ssm_scan(args, states.at(args.buffer), core_.step.view(), core_.step.n_seqs, core_.step.min_q_len,
                 core_.step.max_q_len, !core_.deterministic, parts, core_.device);
  check_launch("ssm_scan");
}

void RecurrenceOps::selective_scan(const SelectiveScanArgs& args) {
  const auto& states = static_cast<const CudaStates&>(*args.states);
  const StateBuffer& s = states.buffer(args.buffer);
  CHECK_EQ(args.x.cols, s.cols);
  CHECK_EQ(args.b.cols, s.rows);
  if (s.rows > kMaxSelectiveDim)
    throw Error("states of {} elements a channel are more than cuda supports ({}): use the device cpu", s.rows,
                kMaxSelectiveDim);
  float* parts = nullptr;
  if (!core_.deterministic && core_.step.max_q_len >= kFewestInParts && s.rows <= kMaxPartState) {
    const int64_t floats = selective_part_floats(s.cols, core_.step.n_tokens, core_.step.n_seqs);
    parts = static_cast<float*>(core_.memory.scratch(Scratch::kUp, static_cast<size_t>(floats) * sizeof(float)));
  }
  cuda::selective_scan(args, states.at(args.buffer), core_.step.view(), core_.step.n_seqs, core_.step.min_q_len,
                       core_.step.max_q_len, parts, core_.device);
  check_launch("selective_scan");
}

void RecurrenceOps::rg_lru(const RgLruArgs& args) {
  const auto& states = static_cast<const CudaStates&>(*args.states);
  CHECK_EQ(args.x.cols, states.buffer(args.buffer).cols);
  float* parts = nullptr;
  const int64_t floats = core_.deterministic ? 0
                                             : rg_lru_part_floats(args.x.cols, core_.step.n_tokens, core_.step.n_seqs,
                                                                  core_.step.max_q_len);
  if (floats > 0)
    parts = static_cast<float*>(core_.memory.scratch(Scratch::kUp, static_cast<size_t>(floats) * sizeof(float)));
  cuda::rg_lru(args, states.at(args.buffer), core_.step.view(), core_.step.n_seqs, core_.step.max_q_len, parts,
               core_.device);
  check_launch("rg_lru");
}

void RecurrenceOps::kda_inputs(const KdaInputsArgs& args) {
  check_key_dim(args.q.cols / args.beta.cols);
  cuda::kda_inputs(args, core_.device);
  check_launch("kda_inputs");
}

void RecurrenceOps::rank_one_rule(const RankOneRuleArgs& args) {
  const auto& states = static_cast<const CudaStates&>(*args.states);
  const StateBuffer& s = states.buffer(args.buffer);
  CHECK_EQ(args.q.cols, s.count * s.rows);
  CHECK_EQ(args.v.cols, s.count * s.cols);
  check_key_dim(s.rows);
  cuda::rank_one_rule(args, states.at(args.buffer), core_.step.view(), core_.step.n_seqs, core_.step.max_q_len,
                      !core_.deterministic, core_.device);
  check_launch("rank_one_rule");
}

void RecurrenceOps::mix_tokens(const MixTokensArgs& args) {
  const auto& states = static_cast<const CudaStates&>(*args.states);
  CHECK_EQ(args.y.cols, args.mix.rows * args.x.cols);
  CHECK_EQ(states.buffer(args.buffer).size(), args.x.cols);
  cuda::mix_tokens(args, states.at(args.buffer), core_.step.view(), core_.step.n_tokens, core_.device);
  check_launch("mix_tokens");
}

void RecurrenceOps::wkv7_inputs(const Wkv7InputsArgs& args) {
  check_key_dim(args.k.cols / args.n_heads);
  cuda::wkv7_inputs(args, core_.device);
  check_launch("wkv7_inputs");
}

void RecurrenceOps::wkv7_outputs(const Wkv7OutputsArgs& args, const Tensor& out) {
  check_key_dim(args.y.cols / args.n_heads);
  cuda::wkv7_outputs(args, out, core_.device);
  check_launch("wkv7_outputs");
}

void RecurrenceOps::wkv7(const Wkv7Args& args) {
  const DeviceStates states = static_cast<const CudaStates&>(*args.rule.states).at(args.rule.buffer);
  if (!core_.deterministic && core_.step.min_q_len == 1 && core_.step.max_q_len == 1 && can_step_wkv7(args, states)) {
    cuda::step_wkv7(args, states, core_.step.view(), core_.step.n_seqs, core_.device);
    return check_launch("step_wkv7");
  }
  wkv7_inputs(args.inputs);
  rank_one_rule(args.rule);
  wkv7_outputs(args.outputs, args.out);
}

}  // namespace ingot::cuda
