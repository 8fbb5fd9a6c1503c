// The recurrence of Griffin, token by token. A thread handles a channel of a sequence, with the inputs of the next
// tokens in flight. So a token's result never depends on the batch.
#include "backend/cuda/launch.cuh"
#include "backend/cuda/recurrence/recurrence.cuh"
#include "backend/cuda/recurrence/recurrence.h"

namespace ingot::cuda {

using namespace recurrence;

namespace {

constexpr int kLruThreads = 64, kLruAhead = 8;  // channels of a block; tokens loaded ahead

struct Lru {
  float* x;
  const float *input_gate, *decay_gate, *decay;
  int64_t x_stride, input_stride, decay_stride;
  int n_channels;
  DeviceStates states;
  DeviceBatch batch;
};

__global__ void __launch_bounds__(kLruThreads) rg_lru_kernel(const __grid_constant__ Lru p) {
  start_dependent();
  const int c = static_cast<int>(blockIdx.x) * kLruThreads + threadIdx.x, seq = blockIdx.y;
  if (c >= p.n_channels) return;
  const int begin = p.batch.q_start[seq], end = p.batch.q_start[seq + 1], in = p.batch.state_in[seq];
  const float rate = -8.0f * softplus(p.decay[c]);
  float h = in >= 0 ? p.states.data[in * p.states.slot_floats + c] : 0.0f;
  bool is_first = in < 0;
  for (int64_t first = begin; first < end; first += kLruAhead) {
    float x[kLruAhead], input[kLruAhead], decay[kLruAhead];
#pragma unroll
    for (int i = 0; i < kLruAhead; ++i) {
      const int64_t t = min(first + i, int64_t{end} - 1);
      x[i] = p.x[t * p.x_stride + c];
      input[i] = p.input_gate[t * p.input_stride + c];
      decay[i] = p.decay_gate[t * p.decay_stride + c];
    }
#pragma unroll
    for (int i = 0; i < kLruAhead; ++i) {
      if (first + i >= end) break;
      const float log_a = rate * sigmoid(decay[i]), gated = sigmoid(input[i]) * x[i];
      h = is_first ? gated : fmaf(expf(log_a), h, sqrtf(-expm1f(2.0f * log_a)) * gated);
      is_first = false;
      p.x[(first + i) * p.x_stride + c] = h;
    }
  }
  p.states.data[p.batch.state_out[seq] * p.states.slot_floats + c] = h;
}

}  // namespace

void rg_lru(const RgLruArgs& a, const DeviceStates& states, const DeviceBatch& batch, int n_seqs, Device& device) {
  if (n_seqs == 0) return;
  const Lru p{.x = a.x.f32(),
              .input_gate = a.input_gate.f32(),
              .decay_gate = a.decay_gate.f32(),
              .decay = a.decay.f32(),
              .x_stride = a.x.stride,
              .input_stride = a.input_gate.stride,
              .decay_stride = a.decay_gate.stride,
              .n_channels = static_cast<int>(a.x.cols),
              .states = states,
              .batch = batch};
  launch(device, rg_lru_kernel, dim3(blocks_for(a.x.cols, kLruThreads), static_cast<unsigned>(n_seqs)), kLruThreads, 0,
         p);
}

}  // namespace ingot::cuda
