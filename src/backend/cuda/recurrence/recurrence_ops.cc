// The ops of recurrent layers, and the layout of their states: the buffers of a slot lie one after another. The
// last slot is for the sequences that pad a step.
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/recurrence/recurrence.h"
#include "base/error.h"

namespace ingot {

using cuda::check_launch;

namespace {

constexpr int kMaxWhole = 64;  // longest sequence, in tokens, that a convolution does not cut

struct CudaStates : StateCache {
  CudaStates(const StateShape& s, cuda::Memory m) : StateCache(s), memory(std::move(m)) {}
  cuda::DeviceStates at(int buffer_index) const {
    int64_t first = 0;
    for (int i = 0; i < buffer_index; ++i) first += buffer(i).size();
    CHECK(buffer(buffer_index).dtype == DType::kF32);
    return {static_cast<float*>(memory.data()) + first, static_cast<int64_t>(shape.slot_bytes() / sizeof(float))};
  }
  cuda::Memory memory;
};

}  // namespace

// Includes the slot to which padding writes.
size_t CudaBackend::state_bytes(const StateShape& shape) const {
  return static_cast<size_t>(shape.n_slots + 1) * shape.slot_bytes();
}

std::unique_ptr<StateCache> CudaBackend::make_states(const StateShape& shape) {
  device_.make_current();
  drop_graphs();
  cuda::Memory memory(state_bytes(shape));
  allocated_ += memory.size();
  states_ = {{memory.data(), memory.size()}};  // a model has one state cache, and it lives as long as the model's steps
  return std::make_unique<CudaStates>(shape, std::move(memory));
}

void CudaBackend::gate(Tensor x, Tensor gate) {
  cuda::gate_rows(x, gate, device_);
  check_launch("gate_rows");
}

void CudaBackend::short_conv(Tensor x, Tensor weight, StateCache& cache, int buffer) {
  const auto& states = static_cast<const CudaStates&>(cache);
  CHECK_EQ(states.buffer(buffer).size(), (weight.cols - 1) * x.cols);
  if (weight.cols > cuda::kMaxConvWidth)
    throw Error("a convolution over {} tokens is more than cuda supports ({}): use the device cpu", weight.cols,
                cuda::kMaxConvWidth);
  float* edges = nullptr;
  if (max_q_len_ > kMaxWhole) {
    const int64_t floats = cuda::conv_edge_floats(x.cols, static_cast<int>(weight.cols), n_tokens_, n_seqs_);
    edges = static_cast<float*>(scratch_at_least(up_, static_cast<size_t>(floats) * sizeof(float)));
  }
  cuda::short_conv(x, weight, states.at(buffer), device_batch_.view(), n_seqs_, max_q_len_, edges, device_);
  check_launch("short_conv");
}

void CudaBackend::delta_rule(const DeltaRuleArgs& args) {
  const auto& states = static_cast<const CudaStates&>(*args.states);
  const StateBuffer& s = states.buffer(args.buffer);
  CHECK_EQ(args.qkv.cols, 2 * args.n_key_heads * s.rows + s.count * s.cols);
  if (s.rows > cuda::kMaxKeyDim)
    throw Error("keys of {} elements are more than cuda supports ({}): use the device cpu", s.rows, cuda::kMaxKeyDim);
  cuda::delta_rule(args, states.at(args.buffer), device_batch_.view(), n_seqs_, min_q_len_, max_q_len_, !deterministic_,
                   device_);
  check_launch("delta_rule");
}

}  // namespace ingot
