// The recurrence of Griffin, token by token. A thread handles a channel of a sequence, with the inputs of the next
// tokens in flight. So a token's result never depends on the batch.
//
// With room for them, long sequences are cut into parts that are walked at once: first without outputs, from zero, for
// the state and the decay at the end of each part; then for outputs, from the state before the part.
#include <algorithm>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/recurrence/recurrence.cuh"
#include "backend/cuda/recurrence/recurrence.h"

namespace ingot::cuda {

using namespace recurrence;

namespace {

constexpr int kLruThreads = 64, kLruAhead = 8;          // channels of a block; tokens loaded ahead
constexpr int kFewestLruPart = 64, kMostLruParts = 32;  // tokens of a part; parts of a sequence

struct Lru {
  float* x;
  const float *input_gate, *decay_gate, *decay;
  int64_t x_stride, input_stride, decay_stride;
  int n_channels, n_seqs;
  int part;      // tokens
  float* parts;  // [n_seqs, n_channels]: states before sequences; [parts, 2, n_channels]: ends and logarithms of decays
  DeviceStates states;
  DeviceBatch batch;

  __device__ float* start_of(int seq) const { return parts + int64_t{seq} * n_channels; }
  // Parts are in the order of sequences, with gaps.
  __device__ float* part_of(int first_token, int seq) const {
    return parts + (n_seqs + int64_t{2} * (first_token / part + seq)) * n_channels;
  }
};

// What a walk computes: all of a sequence, the ends of parts, or the outputs of parts.
enum class LruWalk { kAll, kEnds, kOutputs };

// The state before a part, from the ends of the parts before it.
__device__ __forceinline__ float state_before(const Lru& p, int seq, int start, int begin, int c) {
  float h = p.start_of(seq)[c];
#pragma unroll 4
  for (int first = start; first < begin; first += p.part) {
    const float* part = p.part_of(first, seq) + c;
    h = fmaf(expf(part[p.n_channels]), h, part[0]);
  }
  return h;
}

template <LruWalk kWalk>
__global__ void __launch_bounds__(kLruThreads) rg_lru_kernel(const __grid_constant__ Lru p) {
  start_dependent();
  const int c = static_cast<int>(blockIdx.x) * kLruThreads + threadIdx.x, seq = blockIdx.y;
  if (c >= p.n_channels) return;
  const int start = p.batch.q_start[seq], stop = p.batch.q_start[seq + 1], in = p.batch.state_in[seq];
  const int begin = start + static_cast<int>(blockIdx.z) * p.part,
            end = kWalk == LruWalk::kAll ? stop : min(begin + p.part, stop);
  if (begin >= stop) return;
  const float rate = -8.0f * softplus(p.decay[c]);
  float h = 0, log_decay = 0;
  if (kWalk == LruWalk::kOutputs) {
    h = state_before(p, seq, start, begin, c);
  } else if (begin == start) {
    const float before = in >= 0 ? p.states.data[in * p.states.slot_floats + c] : 0.0f;
    kWalk == LruWalk::kEnds ? p.start_of(seq)[c] = before : h = before;
  }
  bool is_first = begin == start && in < 0;
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
      log_decay += log_a;
      is_first = false;
      if (kWalk != LruWalk::kEnds) p.x[(first + i) * p.x_stride + c] = h;
    }
  }
  if (kWalk == LruWalk::kEnds) {
    float* part = p.part_of(begin, seq) + c;
    part[0] = h, part[p.n_channels] = log_decay;
  } else if (end == stop) {
    p.states.data[p.batch.state_out[seq] * p.states.slot_floats + c] = h;
  }
}

int lru_part(int most_tokens) { return std::max(kFewestLruPart, (most_tokens + kMostLruParts - 1) / kMostLruParts); }

}  // namespace

int64_t rg_lru_part_floats(int64_t n_channels, int n_tokens, int n_seqs, int most_tokens) {
  if (most_tokens < 2 * kFewestLruPart) return 0;
  return (n_seqs + int64_t{2} * (n_tokens / lru_part(most_tokens) + n_seqs + 1)) * n_channels;
}

void rg_lru(const RgLruArgs& a, const DeviceStates& states, const DeviceBatch& batch, int n_seqs, int most_tokens,
            float* parts, Device& device) {
  if (n_seqs == 0) return;
  const Lru p{.x = a.x.f32(),
              .input_gate = a.input_gate.f32(),
              .decay_gate = a.decay_gate.f32(),
              .decay = a.decay.f32(),
              .x_stride = a.x.stride,
              .input_stride = a.input_gate.stride,
              .decay_stride = a.decay_gate.stride,
              .n_channels = static_cast<int>(a.x.cols),
              .n_seqs = n_seqs,
              .part = lru_part(most_tokens),
              .parts = parts,
              .states = states,
              .batch = batch};
  const auto walk = [&](auto kernel, unsigned n_parts) {
    launch(device, kernel, dim3(blocks_for(a.x.cols, kLruThreads), static_cast<unsigned>(n_seqs), n_parts), kLruThreads,
           0, p);
  };
  if (parts == nullptr) return walk(rg_lru_kernel<LruWalk::kAll>, 1);
  walk(rg_lru_kernel<LruWalk::kEnds>, blocks_for(most_tokens, p.part));
  walk(rg_lru_kernel<LruWalk::kOutputs>, blocks_for(most_tokens, p.part));
}

}  // namespace ingot::cuda
