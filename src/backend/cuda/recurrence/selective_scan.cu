// The scan of Mamba, token by token: one launch for all channels of all sequences. A few lanes handle a channel: they
// keep its state in registers, and sum their shares of a token's output. So a token's result never depends on the
// batch. The inputs of the next tokens are read while some tokens are computed. selective_parts.cu has the scan of long
// sequences.
#include "backend/cuda/recurrence/selective_scan.cuh"

namespace ingot::cuda {

using namespace recurrence;

namespace {

constexpr int kSelectiveThreads = 128, kStateLanes = 4, kBlockChannels = kSelectiveThreads / kStateLanes;

// kPer: elements of the state in a lane.
template <int kPer>
struct TokenInputs {
  float x = 0, dt = 0, gate = 0, b[kPer] = {}, c[kPer] = {};

  __device__ void read(const Selective& p, int64_t t, int channel, int first) {
    x = p.x[t * p.x_stride + channel];
    dt = p.dt[t * p.dt_stride + channel];
    if (p.gate != nullptr) gate = p.gate[t * p.gate_stride + channel];
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      const int row = first + j;
      b[j] = row < p.state_dim ? p.b[t * p.b_stride + row] : 0.0f;
      c[j] = row < p.state_dim ? p.c[t * p.c_stride + row] : 0.0f;
    }
  }
};

// kAhead: tokens whose inputs are read at once.
template <int kPer, int kAhead>
__global__ void __launch_bounds__(kSelectiveThreads) selective_kernel(const __grid_constant__ Selective p) {
  start_dependent();
  const int lane = threadIdx.x % kStateLanes, seq = blockIdx.y,
            wanted = static_cast<int>(blockIdx.x) * kBlockChannels + threadIdx.x / kStateLanes;
  const int channel = min(wanted, p.n_channels - 1), first = lane * kPer;  // all lanes of a warp take part in sums
  const int begin = p.batch.q_start[seq], end = p.batch.q_start[seq + 1], in = p.batch.state_in[seq];
  if (end - begin >= p.fewest_in_parts) return;
  const int64_t place = int64_t{channel} * p.state_dim;
  const float dt_bias = p.dt_bias[channel], skip = p.skip[channel];
  const float* before = p.states.data + in * p.states.slot_floats + place;
  float s[kPer], decay[kPer];
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    const int row = first + j;
    const bool is_own = row < p.state_dim;
    s[j] = in >= 0 && is_own ? before[row] : 0.0f;
    decay[j] = is_own ? kLog2E * p.decay[channel * p.decay_stride + row] : 0.0f;
  }
  TokenInputs<kPer> next[kAhead];
  const auto read = [&](int64_t t) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (t + i < end) next[i].read(p, t + i, channel, first);
  };
  read(begin);
  for (int64_t t = begin; t < end; t += kAhead) {
    TokenInputs<kPer> tokens[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) tokens[i] = next[i];
    read(t + kAhead);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (t + i >= end) break;
      const TokenInputs<kPer>& now = tokens[i];
      const float step = softplus(now.dt + dt_bias), change = step * now.x;
      float out = 0;
#pragma unroll
      for (int j = 0; j < kPer; ++j) {
        s[j] = fmaf(now.b[j], change, exp2f(decay[j] * step) * s[j]);
        out = fmaf(now.c[j], s[j], out);
      }
#pragma unroll
      for (int j = kStateLanes / 2; j > 0; j /= 2) out += __shfl_xor_sync(0xFFFFFFFFu, out, j);
      if (lane == 0 && wanted < p.n_channels)
        p.write(t + i, channel, fmaf(skip, now.x, out), now.gate);
    }
  }
  if (wanted >= p.n_channels) return;
  float* after = p.states.data + p.batch.state_out[seq] * p.states.slot_floats + place;
#pragma unroll
  for (int j = 0; j < kPer; ++j)
    if (const int row = first + j; row < p.state_dim) after[row] = s[j];
}

}  // namespace

void selective_scan(const SelectiveScanArgs& a, const DeviceStates& states, const DeviceBatch& batch, int n_seqs,
                    int fewest_tokens, int most_tokens, float* parts, Device& device) {
  if (n_seqs == 0) return;
  const StateBuffer& s = a.states->buffer(a.buffer);
  Selective p{.y = a.y.data,
              .x = a.x.f32(),
              .dt = a.dt.f32(),
              .gate = a.gate ? a.gate.f32() : nullptr,
              .b = a.b.f32(),
              .c = a.c.f32(),
              .decay = a.decay.f32(),
              .dt_bias = a.dt_bias.f32(),
              .skip = a.skip.f32(),
              .y_stride = a.y.stride,
              .x_stride = a.x.stride,
              .dt_stride = a.dt.stride,
              .gate_stride = a.gate.stride,
              .b_stride = a.b.stride,
              .c_stride = a.c.stride,
              .decay_stride = a.decay.stride,
              .writes_halves = a.y.dtype == DType::kF16,
              .n_channels = static_cast<int>(s.cols),
              .state_dim = static_cast<int>(s.rows),
              .fewest_in_parts = INT32_MAX,
              .states = states,
              .batch = batch};
  if (parts != nullptr) {
    p.fewest_in_parts = kFewestInParts;
    scan_parts(p, parts, n_seqs, most_tokens, device);
    if (fewest_tokens >= kFewestInParts) return;
  }
  const dim3 grid(blocks_for(p.n_channels, kBlockChannels), static_cast<unsigned>(n_seqs));
  const auto start = [&](auto kernel) { launch(device, kernel, grid, kSelectiveThreads, 0, p); };
  static_assert(kMaxSelectiveDim <= 16 * kStateLanes);
  const bool is_long = most_tokens >= kManyTokens;
  if (p.state_dim <= 4 * kStateLanes) return is_long ? start(selective_kernel<4, 4>) : start(selective_kernel<4, 1>);
  if (p.state_dim <= 8 * kStateLanes) return is_long ? start(selective_kernel<8, 2>) : start(selective_kernel<8, 1>);
  start(selective_kernel<16, 1>);
}

}  // namespace ingot::cuda
