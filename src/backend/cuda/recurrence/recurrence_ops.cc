// The ops of recurrent layers, and the layout of their states: slots [layer][inputs of the convolution, matrices of the
// heads]. The last slot is for the sequences that pad a step.
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/recurrence/recurrence.h"
#include "base/error.h"

namespace ingot {

using cuda::check_launch;

namespace {

constexpr int kMaxWhole = 64;  // longest sequence, in tokens, that a convolution does not cut

int64_t layer_floats(const StateShape& s) { return s.conv_floats() + s.n_heads * s.head_floats(); }

struct CudaStates : StateCache {
  CudaStates(const StateShape& s, cuda::Memory m) : StateCache(s), memory(std::move(m)) {}
  cuda::DeviceStates inputs(int layer) const {
    CHECK(layer >= 0 && layer < shape.n_layers);
    return {static_cast<float*>(memory.data()) + layer * layer_floats(shape), shape.n_layers * layer_floats(shape)};
  }
  cuda::DeviceStates matrices(int layer) const {
    cuda::DeviceStates states = inputs(layer);
    states.data += shape.conv_floats();
    return states;
  }
  cuda::Memory memory;
};

}  // namespace

// Includes the slot to which padding writes.
size_t CudaBackend::state_bytes(const StateShape& shape) const {
  const auto slot_floats = static_cast<size_t>(shape.n_layers * layer_floats(shape));
  return static_cast<size_t>(shape.n_slots + 1) * slot_floats * sizeof(float);
}

std::unique_ptr<StateCache> CudaBackend::make_states(const StateShape& shape) {
  device_.make_current();
  if (shape.conv_width > cuda::kMaxConvWidth || shape.key_dim > cuda::kMaxKeyDim)
    throw Error(
        "a convolution over {} tokens or keys of {} elements are more than cuda supports ({} and {}): use the device "
        "cpu",
        shape.conv_width, shape.key_dim, cuda::kMaxConvWidth, cuda::kMaxKeyDim);
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

void CudaBackend::short_conv(Tensor x, Tensor weight, StateCache& cache, int layer) {
  const auto& states = static_cast<const CudaStates&>(cache);
  CHECK_EQ(x.cols, states.shape.n_channels);
  CHECK_EQ(weight.cols, states.shape.conv_width);
  float* edges = nullptr;
  if (max_q_len_ > kMaxWhole) {
    const int64_t floats = cuda::conv_edge_floats(x.cols, static_cast<int>(weight.cols), n_tokens_, n_seqs_);
    edges = static_cast<float*>(scratch_at_least(up_, static_cast<size_t>(floats) * sizeof(float)));
  }
  cuda::short_conv(x, weight, states.inputs(layer), device_batch_.view(), n_seqs_, max_q_len_, edges, device_);
  check_launch("short_conv");
}

void CudaBackend::delta_rule(const DeltaRuleArgs& args) {
  const auto& states = static_cast<const CudaStates&>(*args.states);
  const StateShape& s = states.shape;
  CHECK_EQ(args.qkv.cols, 2 * args.n_key_heads * s.key_dim + s.n_heads * s.value_dim);
  cuda::delta_rule(args, states.matrices(args.layer), device_batch_.view(), n_seqs_, min_q_len_, max_q_len_,
                   !deterministic_, device_);
  check_launch("delta_rule");
}

}  // namespace ingot
