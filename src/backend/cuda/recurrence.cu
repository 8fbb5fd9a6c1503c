// Gates, short convolutions and the gated delta rule. A thread goes through all tokens of its sequence in order, with its share of the
// state in registers and the next tokens' inputs on their way, so a token's numbers never depend on the batch.
#include "backend/cuda/device.cuh"
#include "backend/cuda/recurrence.h"

namespace ingot::cuda {
namespace {

constexpr int kThreads = 256, kConvThreads = 128;
constexpr int kConvAhead = 8;    // tokens
constexpr int kColumnLanes = 8;  // lanes that share a column of a head's matrix

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

template <class X, class G>
__global__ void gate_kernel(X* x, int64_t x_stride, const G* gate, int64_t gate_stride, int64_t cols, int64_t n) {
  start_dependent();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  X& at = x[i / cols * x_stride + i % cols];
  at = from_float<X>(to_float(at) * sigmoid(to_float(gate[i / cols * gate_stride + i % cols])));
}

struct Conv {
  float* x;
  int64_t x_stride;
  const float* weight;  // [n_channels, width]
  int64_t weight_stride;
  int width, n_channels;
  DeviceStates states;
  DeviceBatch batch;
};

// A channel of a sequence. Weights and inputs stand at the end of kMost; what is before them is zeros.
template <int kMost>
__global__ void __launch_bounds__(kConvThreads) conv_kernel(const __grid_constant__ Conv p) {
  start_dependent();
  const int c = static_cast<int>(blockIdx.x) * kConvThreads + threadIdx.x, seq = blockIdx.y, none = kMost - p.width;
  if (c >= p.n_channels) return;
  const int begin = p.batch.q_start[seq], n = p.batch.q_start[seq + 1] - begin, in = p.batch.state_in[seq];
  float weights[kMost], window[kMost];  // the last of the window is the token's own input
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    weights[i] = i >= none ? p.weight[c * p.weight_stride + i - none] : 0.0f;
    const bool kept = in >= 0 && i >= none && i < kMost - 1;
    window[i] = kept ? p.states.data[in * p.states.slot_floats + int64_t{i - none} * p.n_channels + c] : 0.0f;
  }
  float* x = p.x + begin * p.x_stride + c;
  for (int first = 0; first < n; first += kConvAhead) {
    float inputs[kConvAhead];
#pragma unroll
    for (int j = 0; j < kConvAhead; ++j) inputs[j] = first + j < n ? x[(first + j) * p.x_stride] : 0.0f;
#pragma unroll
    for (int j = 0; j < kConvAhead; ++j) {
      if (first + j >= n) break;
      window[kMost - 1] = inputs[j];
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kMost; ++i)
        if (i >= none) sum = fmaf(weights[i], window[i], sum);
      x[(first + j) * p.x_stride] = sum * sigmoid(sum);
#pragma unroll
      for (int i = 0; i + 1 < kMost; ++i) window[i] = window[i + 1];
    }
  }
  float* after = p.states.data + p.batch.state_out[seq] * p.states.slot_floats + c;
#pragma unroll
  for (int i = 0; i + 1 < kMost; ++i)
    if (i >= none) after[int64_t{i - none} * p.n_channels] = window[i];
}

struct Delta {
  float* y;
  const float *qkv, *beta, *alpha, *decay, *dt;
  int64_t y_stride, qkv_stride, beta_stride, alpha_stride;
  int n_heads, n_key_heads, key_dim, value_dim;
  bool tiled;
  DeviceStates states;  // of the matrices
  DeviceBatch batch;
};

__device__ __forceinline__ float sum_of_column(float v) {
#pragma unroll
  for (int s = kColumnLanes / 2; s > 0; s /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, s);
  return v;
}

// What a lane needs of a token.
template <int kPer>
struct Token {
  float q[kPer], k[kPer], v, beta, alpha;
};

// A lane's rows of a column: with kPacks four neighbours at a time, else one; what is past key_dim is zeros.
template <int kPer, bool kPacks>
__device__ __forceinline__ int row_of(int j, int lane) {
  return kPacks ? 4 * kColumnLanes * (j / 4) + 4 * lane + j % 4 : lane + kColumnLanes * j;
}
template <int kPer, bool kPacks>
__device__ __forceinline__ void load_rows(float (&to)[kPer], const float* from, int n, int lane) {
#pragma unroll
  for (int j = 0; j < kPer; j += kPacks ? 4 : 1) {
    const int row = row_of<kPer, kPacks>(j, lane);
    if constexpr (kPacks) {
      const float4 v = row < n ? *reinterpret_cast<const float4*>(from + row) : float4{};
      to[j] = v.x, to[j + 1] = v.y, to[j + 2] = v.z, to[j + 3] = v.w;
    } else {
      to[j] = row < n ? from[row] : 0.0f;
    }
  }
}

template <int kPer, bool kPacks>
__global__ void __launch_bounds__(kThreads) delta_kernel(const __grid_constant__ Delta p) {
  start_dependent();
  const int head = blockIdx.y, seq = blockIdx.z, lane = threadIdx.x % kColumnLanes;
  const int column = static_cast<int>(blockIdx.x) * (kThreads / kColumnLanes) + threadIdx.x / kColumnLanes;
  const int own = min(column, p.value_dim - 1);  // lanes past the last column help with shuffles
  const bool writes = column < p.value_dim;
  const int key_head = p.tiled ? head % p.n_key_heads : head / (p.n_heads / p.n_key_heads), keys = p.n_key_heads * p.key_dim;
  const int begin = p.batch.q_start[seq], end = p.batch.q_start[seq + 1], in = p.batch.state_in[seq];
  const int64_t place = (int64_t{head} * p.value_dim + own) * p.key_dim;
  float s[kPer] = {};
  if (in >= 0) load_rows<kPer, kPacks>(s, p.states.data + in * p.states.slot_floats + place, p.key_dim, lane);
  const float decay = p.decay[head], dt = p.dt[head], q_scale = 1.0f / sqrtf(static_cast<float>(p.key_dim));
  const auto load = [&](Token<kPer>& token, int t) {
    const float* row = p.qkv + t * p.qkv_stride;
    load_rows<kPer, kPacks>(token.q, row + key_head * p.key_dim, p.key_dim, lane);
    load_rows<kPer, kPacks>(token.k, row + keys + key_head * p.key_dim, p.key_dim, lane);
    token.v = row[2 * keys + head * p.value_dim + own];
    token.beta = p.beta[t * p.beta_stride + head];
    token.alpha = p.alpha[t * p.alpha_stride + head];
  };
  Token<kPer> next;
  load(next, begin);
  for (int t = begin; t < end; ++t) {
    const Token<kPer> token = next;
    if (t + 1 < end) load(next, t + 1);
    float qq = 0, kk = 0, known = 0;
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      qq = fmaf(token.q[j], token.q[j], qq);
      kk = fmaf(token.k[j], token.k[j], kk);
      known = fmaf(token.k[j], s[j], known);
    }
    qq = sum_of_column(qq), kk = sum_of_column(kk), known = sum_of_column(known);
    const float step = token.alpha + dt, positive = step > 20.0f ? step : log1pf(expf(step)), keep = expf(decay * positive);
    const float k_scale = 1.0f / sqrtf(kk + 1e-6f);  // k has length 1
    const float change = sigmoid(token.beta) * (token.v - keep * k_scale * known) * k_scale;
    float out = 0;
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      s[j] = fmaf(token.k[j], change, keep * s[j]);
      out = fmaf(token.q[j], s[j], out);
    }
    out = sum_of_column(out) * (q_scale / sqrtf(qq + 1e-6f));
    if (writes && lane == 0) p.y[t * p.y_stride + head * p.value_dim + column] = out;
  }
  if (!writes) return;
  float* after = p.states.data + p.batch.state_out[seq] * p.states.slot_floats + place;
#pragma unroll
  for (int j = 0; j < kPer; ++j)
    if (const int row = row_of<kPer, kPacks>(j, lane); row < p.key_dim) after[row] = s[j];
}

template <bool kPacks>
void start_delta(const Delta& p, int n_seqs, cudaStream_t stream) {
  const dim3 grid(blocks_for(p.value_dim, kThreads / kColumnLanes), static_cast<unsigned>(p.n_heads), static_cast<unsigned>(n_seqs));
  const auto start = [&](auto kernel) { launch(kernel, grid, kThreads, 0, stream, p); };
  p.key_dim <= 4 * kColumnLanes    ? start(delta_kernel<4, kPacks>)
  : p.key_dim <= 16 * kColumnLanes ? start(delta_kernel<16, kPacks>)
                                   : start(delta_kernel<32, kPacks>);
}

}  // namespace

void gate_rows(const Tensor& x, const Tensor& gate, cudaStream_t stream) {
  const int64_t n = x.rows * x.cols;
  if (n == 0) return;
  with_type(x.dtype, [&](auto* px) {
    with_type(gate.dtype, [&](auto* pg) {
      using X = std::remove_pointer_t<decltype(px)>;
      using G = std::remove_pointer_t<decltype(pg)>;
      launch(gate_kernel<X, G>, dim3(blocks_for(n, kThreads)), kThreads, 0, stream, static_cast<X*>(x.data), x.stride,
             static_cast<const G*>(gate.data), gate.stride, x.cols, n);
    });
  });
}

void short_conv(const Tensor& x, const Tensor& weight, const DeviceStates& states, const DeviceBatch& batch, int n_seqs, cudaStream_t stream) {
  if (n_seqs == 0) return;
  const Conv p{x.f32(), x.stride, weight.f32(), weight.stride, static_cast<int>(weight.cols), static_cast<int>(x.cols), states, batch};
  CHECK(p.width <= kMostConvWidth);
  const dim3 grid(blocks_for(p.n_channels, kConvThreads), static_cast<unsigned>(n_seqs));
  p.width <= 4 ? launch(conv_kernel<4>, grid, kConvThreads, 0, stream, p) : launch(conv_kernel<kMostConvWidth>, grid, kConvThreads, 0, stream, p);
}

void delta_rule(const DeltaRuleArgs& a, const DeviceStates& states, const DeviceBatch& batch, int n_seqs, cudaStream_t stream) {
  if (n_seqs == 0) return;
  const StateShape& s = a.states->shape;
  CHECK(s.key_dim <= kMostKeyDim);
  const Delta p{a.y.f32(), a.qkv.f32(), a.beta.f32(), a.alpha.f32(), a.decay.f32(), a.dt.f32(), a.y.stride, a.qkv.stride, a.beta.stride,
                a.alpha.stride, s.n_heads, a.n_key_heads, s.key_dim, s.value_dim, a.tiled, states, batch};
  const bool packs = s.key_dim % 4 == 0 && a.qkv.stride % 4 == 0 && states.slot_floats % 4 == 0 &&
                     (reinterpret_cast<uintptr_t>(p.qkv) | reinterpret_cast<uintptr_t>(states.data)) % 16 == 0;
  packs ? start_delta<true>(p, n_seqs, stream) : start_delta<false>(p, n_seqs, stream);
}

}  // namespace ingot::cuda
