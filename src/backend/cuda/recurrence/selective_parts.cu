// The scan of Mamba over long sequences, which are cut into parts of 64 tokens. A state after a part is
//   S[i] = exp(decay[i] sum(step)) S_before[i] + (S[i] if the part began with zeros)
// So a first kernel computes, for all parts at once, the steps, their sums and the states of parts that begin with
// zeros. A second kernel finds the states before all parts, part by part. A third kernel scans all parts at once from
// these states. A thread handles a channel of a part, and has its state in registers.
#include "backend/cuda/recurrence/selective_scan.cuh"

namespace ingot::cuda {

using namespace recurrence;

namespace {

constexpr int kPartTokens = 64, kPartThreads = 128, kPartState = kMaxPartState, kAhead = 8;
constexpr int kJoinThreads = 128, kJoinAhead = 8;

struct Parts {
  Selective scan;
  float* states;  // [n_parts, kPartState + 1, n_channels]: of each part the states, and the sums of steps

  // The place of a part. Parts are in the order of sequences, with gaps.
  __device__ float* states_of(int first_token, int seq) const {
    return states + (first_token / kPartTokens + seq) * part_floats();
  }
  __device__ int64_t part_floats() const { return int64_t{kPartState + 1} * scan.n_channels; }
};

// b or c of the tokens of a part. Rows past state_dim are zeros.
using Rows = float[kPartTokens][kPartState];
__device__ __forceinline__ void load_rows(Rows& to, const float* from, int64_t stride, int n, int state_dim) {
  for (int i = threadIdx.x; i < n * kPartState; i += kPartThreads) {
    const int t = i / kPartState, row = i % kPartState;
    to[t][row] = row < state_dim ? from[t * stride + row] : 0.0f;
  }
}

// The inputs of a channel, kAhead tokens at once.
template <bool kGates>
struct Ahead {
  float x[kAhead], dt[kAhead], gate[kAhead];

  __device__ __forceinline__ void read(const Selective& p, int first, int end, int channel) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t t = min(first + i, end - 1);
      x[i] = p.x[t * p.x_stride + channel], dt[i] = p.dt[t * p.dt_stride + channel];
      gate[i] = kGates && p.gate != nullptr ? p.gate[t * p.gate_stride + channel] : 0.0f;
    }
  }
};

// Scans a part of a sequence. kWrites: from the state before the part, and writes outputs; otherwise from zeros.
template <bool kWrites>
__global__ void __launch_bounds__(kPartThreads) part_kernel(const __grid_constant__ Parts parts) {
  __shared__ Rows b, c;
  start_dependent();
  const Selective& p = parts.scan;
  const int seq = blockIdx.z, start = p.batch.q_start[seq], stop = p.batch.q_start[seq + 1],
            begin = start + static_cast<int>(blockIdx.y) * kPartTokens, end = min(begin + kPartTokens, stop);
  if (stop - start < p.fewest_in_parts || begin >= stop) return;
  const int wanted = static_cast<int>(blockIdx.x) * kPartThreads + threadIdx.x, channel = min(wanted, p.n_channels - 1);
  load_rows(b, p.b + begin * p.b_stride, p.b_stride, end - begin, p.state_dim);
  if (kWrites) load_rows(c, p.c + begin * p.c_stride, p.c_stride, end - begin, p.state_dim);
  float* states = parts.states_of(begin, seq) + channel;
  float s[kPartState], decay[kPartState], sum = 0;
#pragma unroll
  for (int i = 0; i < kPartState; ++i) {
    decay[i] = i < p.state_dim ? kLog2E * p.decay[channel * p.decay_stride + i] : 0.0f;
    s[i] = kWrites ? states[int64_t{i} * p.n_channels] : 0.0f;
  }
  const float dt_bias = p.dt_bias[channel], skip = p.skip[channel];
  Ahead<kWrites> next;
  next.read(p, begin, end, channel);
  __syncthreads();
  for (int first = begin; first < end; first += kAhead) {
    const Ahead<kWrites> now = next;
    next.read(p, min(first + kAhead, end - 1), end, channel);
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int t = first + j;
      if (t >= end) break;
      const float step = kWrites ? now.dt[j] : softplus(now.dt[j] + dt_bias), change = step * now.x[j];
      float out = skip * now.x[j];
      if (!kWrites && wanted < p.n_channels) p.dt[t * p.dt_stride + channel] = step;
      sum += step;
#pragma unroll
      for (int i = 0; i < kPartState; ++i) {
        s[i] = fmaf(b[t - begin][i], change, fast_exp2(decay[i] * step) * s[i]);
        if (kWrites) out = fmaf(c[t - begin][i], s[i], out);
      }
      if (kWrites && wanted < p.n_channels)
        p.write(t, channel, out, now.gate[j]);
    }
  }
  if (wanted >= p.n_channels) return;
  if (!kWrites) {
#pragma unroll
    for (int i = 0; i < kPartState; ++i) states[int64_t{i} * p.n_channels] = s[i];
    states[int64_t{kPartState} * p.n_channels] = sum;
  } else if (end == stop) {
    float* after = p.states.data + p.batch.state_out[seq] * p.states.slot_floats + int64_t{channel} * p.state_dim;
#pragma unroll
    for (int i = 0; i < kPartState; ++i)
      if (i < p.state_dim) after[i] = s[i];
  }
}

// A thread handles an element of a channel's state, and replaces the state after each part by the state before it.
__global__ void __launch_bounds__(kJoinThreads) join_kernel(const __grid_constant__ Parts parts) {
  start_dependent();
  const Selective& p = parts.scan;
  const int seq = blockIdx.z, i = blockIdx.y, channel = static_cast<int>(blockIdx.x) * kJoinThreads + threadIdx.x,
            start = p.batch.q_start[seq], stop = p.batch.q_start[seq + 1];
  if (stop - start < p.fewest_in_parts || channel >= p.n_channels) return;
  const int in = p.batch.state_in[seq], n_parts = (stop - start + kPartTokens - 1) / kPartTokens;
  const bool is_own = i < p.state_dim;
  const float decay = is_own ? kLog2E * p.decay[channel * p.decay_stride + i] : 0.0f;
  float s = in >= 0 && is_own
                ? p.states.data[in * p.states.slot_floats + int64_t{channel} * p.state_dim + i]
                : 0.0f;
  const int64_t width = parts.part_floats();
  float *states = parts.states_of(start, seq) + int64_t{i} * p.n_channels + channel,
        *steps = states + int64_t{kPartState - i} * p.n_channels;
  for (int part = 0; part < n_parts; part += kJoinAhead) {
    float after[kJoinAhead], step[kJoinAhead];
#pragma unroll
    for (int j = 0; j < kJoinAhead; ++j)
      if (part + j < n_parts) after[j] = states[(part + j) * width], step[j] = steps[(part + j) * width];
#pragma unroll
    for (int j = 0; j < kJoinAhead; ++j) {
      if (part + j >= n_parts) break;
      states[(part + j) * width] = s;
      s = fmaf(fast_exp2(decay * step[j]), s, after[j]);
    }
  }
}

}  // namespace

int64_t selective_part_floats(int64_t n_channels, int n_tokens, int n_seqs) {
  return (n_tokens / kPartTokens + n_seqs + 1) * n_channels * (kPartState + 1);
}

void recurrence::scan_parts(const Selective& p, float* parts, int n_seqs, int most_tokens, Device& device) {
  CHECK(p.state_dim <= kPartState);
  const unsigned channels = blocks_for(p.n_channels, kPartThreads), n_parts = blocks_for(most_tokens, kPartTokens),
                 seqs = static_cast<unsigned>(n_seqs);
  const Parts all{.scan = p, .states = parts};
  launch(device, part_kernel<false>, dim3(channels, n_parts, seqs), kPartThreads, 0, all);
  launch(device, join_kernel, dim3(blocks_for(p.n_channels, kJoinThreads), kPartState, seqs), kJoinThreads, 0, all);
  launch(device, part_kernel<true>, dim3(channels, n_parts, seqs), kPartThreads, 0, all);
}

}  // namespace ingot::cuda
