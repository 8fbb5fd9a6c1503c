// Gates, short convolutions and the gated delta rule. Threads process the tokens of a sequence in order (in a
// convolution, the tokens of a part of the sequence). So a token's result never depends on the batch. Each thread keeps
// its share of the state in registers, and the inputs of the next tokens in flight. delta_chunks.cu has the rule for
// many tokens at once.
#include "backend/cuda/launch.cuh"
#include "backend/cuda/recurrence/recurrence.cuh"
#include "backend/cuda/recurrence/recurrence.h"

namespace ingot::cuda {

using namespace recurrence;

namespace {

constexpr int kThreads = 256;
constexpr int kConvThreads = 64, kConvAhead = 16;  // channels of a block; tokens loaded ahead
constexpr int kConvPart = 64;                      // tokens of a block if a sequence has many
constexpr int kDeltaThreads = 128, kColumnLanes = 8,
              kColumns = kDeltaThreads / kColumnLanes;  // lanes for each column of a head's matrix

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
  float* edges;  // [part, width - 1, n_channels]: the inputs before each part of a sequence; null: no parts
  const float* bias;                // [n_channels] or null
  const float *in_gate, *out_gate;  // [n_tokens, n_channels] or null
  int64_t in_stride, out_stride;
  bool silu;
  DeviceStates states;
  DeviceBatch batch;

  __device__ float input(int64_t token, int channel) const {
    const float own = x[token * x_stride + channel];
    return in_gate != nullptr ? own * in_gate[token * in_stride + channel] : own;
  }
  // The edges are in the order of sequences and parts, with gaps.
  __device__ float* edge_of(int first_token, int seq) const {
    return edges + (first_token / kConvPart + seq) * int64_t{width - 1} * n_channels;
  }
  // [width - 1, n_channels]: the inputs before a sequence's tokens; null: none
  __device__ const float* state_of(int seq) const {
    const int slot = batch.state_in[seq];
    return slot >= 0 ? states.data + slot * states.slot_floats : nullptr;
  }
};

// Copies the inputs before each part, because the parts overwrite each other's inputs, and the last part may overwrite
// the state that the first part reads.
__global__ void __launch_bounds__(kThreads) edge_kernel(const __grid_constant__ Conv p) {
  start_dependent();
  const int seq = blockIdx.z, begin = p.batch.q_start[seq],
            first = begin + static_cast<int>(blockIdx.y) * kConvPart, kept = p.width - 1;
  if (first >= p.batch.q_start[seq + 1]) return;
  float* to = p.edge_of(first, seq);
  const float* state = first == begin ? p.state_of(seq) : nullptr;
  for (int i = static_cast<int>(blockIdx.x) * kThreads + threadIdx.x; i < kept * p.n_channels;
       i += static_cast<int>(gridDim.x) * kThreads)
    to[i] = first > begin      ? p.input(first - kept + i / p.n_channels, i % p.n_channels)
            : state != nullptr ? state[i]
                               : 0.0f;
}

// A thread handles a channel of a sequence, or of a part of it. Weights and inputs are at the end of arrays of
// kMaxWidth, after zeros.
template <int kMaxWidth>
__global__ void __launch_bounds__(kConvThreads) conv_kernel(const __grid_constant__ Conv p) {
  start_dependent();
  const int c = static_cast<int>(blockIdx.x) * kConvThreads + threadIdx.x, seq = blockIdx.y, none = kMaxWidth - p.width;
  if (c >= p.n_channels) return;
  const int start = p.batch.q_start[seq], begin = start + static_cast<int>(blockIdx.z) * kConvPart,
            end = p.batch.q_start[seq + 1];
  if (begin >= end) return;
  const int n = p.edges != nullptr ? min(kConvPart, end - begin) : end - begin;
  const float* before = p.edges != nullptr ? p.edge_of(begin, seq) : p.state_of(seq);
  float weights[kMaxWidth], window[kMaxWidth];  // the last input in window is the token's own
#pragma unroll
  for (int i = 0; i < kMaxWidth; ++i) {
    weights[i] = i >= none ? p.weight[c * p.weight_stride + i - none] : 0.0f;
    const bool kept = before != nullptr && i >= none && i < kMaxWidth - 1;
    window[i] = kept ? before[int64_t{i - none} * p.n_channels + c] : 0.0f;
  }
  float* x = p.x + begin * p.x_stride + c;
  const float bias = p.bias != nullptr ? p.bias[c] : 0.0f;
  float next[kConvAhead];
  const auto load = [&](int first) {
#pragma unroll
    for (int j = 0; j < kConvAhead; ++j) next[j] = first + j < n ? p.input(begin + first + j, c) : 0.0f;
  };
  const auto use = [&](float input, int t) {
    window[kMaxWidth - 1] = input;
    float sum = bias;
#pragma unroll
    for (int i = 0; i < kMaxWidth; ++i)
      if (i >= none) sum = fmaf(weights[i], window[i], sum);
    if (p.silu) sum = sum / (1.0f + __expf(-sum));
    x[t * p.x_stride] = p.out_gate != nullptr ? sum * p.out_gate[(begin + t) * p.out_stride + c] : sum;
#pragma unroll
    for (int i = 0; i + 1 < kMaxWidth; ++i) window[i] = window[i + 1];
  };
  load(0);
  for (int first = 0; first < n; first += kConvAhead) {
    float inputs[kConvAhead];
#pragma unroll
    for (int j = 0; j < kConvAhead; ++j) inputs[j] = next[j];
    load(first + kConvAhead);  // before the stores, because loads after them would wait
    if (first + kConvAhead <= n) {
#pragma unroll
      for (int j = 0; j < kConvAhead; ++j) use(inputs[j], first + j);
    } else {
#pragma unroll
      for (int j = 0; j < kConvAhead; ++j)
        if (first + j < n) use(inputs[j], first + j);
    }
  }
  if (begin + n < end) return;
  float* after = p.states.data + p.batch.state_out[seq] * p.states.slot_floats + c;
#pragma unroll
  for (int i = 0; i + 1 < kMaxWidth; ++i)
    if (i >= none) after[int64_t{i - none} * p.n_channels] = window[i];
}

__device__ __forceinline__ float sum_of_column(float v) {
#pragma unroll
  for (int s = kColumnLanes / 2; s > 0; s /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, s);
  return v;
}

__device__ __forceinline__ void copy_floats(float* to, const float* from, bool in) {  // four
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(in ? 16 : 0)
               : "memory");
}

// The inputs of a few tokens in shared memory: q, then k, padded with zeros to the rows of the lanes, then the block's
// columns of v.
template <int kPer>
struct Chunk {
  static constexpr int kRows = kPer * kColumnLanes, kTokens = kPer > 16 ? 8 : 16;
  float qk[kTokens][2][kRows];
  float v[kTokens][kColumns];
  float beta[kTokens], alpha[kTokens];
};
// The update of a head by each token: S = keep S; S += k^T (take (v - k S)), where k and q are multiplied by these
// factors.
template <int kTokens>
struct Factors {
  float keep[kTokens], take[kTokens], k[kTokens], q[kTokens];
};

template <int kPer, bool kPacks>
__device__ void copy_chunk(Chunk<kPer>& chunk, const Delta& p, int head, int first, int n) {
  using C = Chunk<kPer>;
  constexpr int kStep = kPacks ? 4 : 1, kPerRow = C::kRows / kStep;
  const int key_head = p.tiled ? head % p.n_key_heads : head / (p.n_heads / p.n_key_heads),
            keys = p.n_key_heads * p.key_dim;
  for (int i = threadIdx.x; i < n * 2 * kPerRow; i += kDeltaThreads) {
    const int t = i / (2 * kPerRow), which = i / kPerRow % 2, row = i % kPerRow * kStep;
    const bool in = row < p.key_dim;
    const float* from = p.qkv + (first + t) * p.qkv_stride + which * keys + key_head * p.key_dim + (in ? row : 0);
    kPacks ? copy_floats(&chunk.qk[t][which][row], from, in) : copy_float(&chunk.qk[t][which][row], from, in);
  }
  const int first_column = static_cast<int>(blockIdx.x) * kColumns;
  for (int i = threadIdx.x; i < n * kColumns; i += kDeltaThreads) {
    const int t = i / kColumns, c = first_column + i % kColumns;
    const bool in = c < p.value_dim;
    copy_float(&chunk.v[t][i % kColumns],
               p.qkv + (first + t) * p.qkv_stride + 2 * keys + head * p.value_dim + (in ? c : 0), in);
  }
  if (const int t = threadIdx.x; t < n) {
    copy_float(&chunk.beta[t], p.beta + (first + t) * p.beta_stride + head, true);
    copy_float(&chunk.alpha[t], p.alpha + (first + t) * p.alpha_stride + head, true);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// The lanes of a column handle one token each.
template <int kPer>
__device__ void find_factors(Factors<Chunk<kPer>::kTokens>& factors, const Chunk<kPer>& chunk, const Delta& p, int head,
                             int n) {
  const int lane = threadIdx.x % kColumnLanes, t = threadIdx.x / kColumnLanes, own = min(t, n - 1);
  float squares[2] = {};
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    for (int i = lane; i < Chunk<kPer>::kRows; i += kColumnLanes)
      squares[which] = fmaf(chunk.qk[own][which][i], chunk.qk[own][which][i], squares[which]);
    squares[which] = sum_of_column(squares[which]);
  }
  if (lane > 0 || t >= n) return;
  factors.keep[t] = expf(p.decay[head] * softplus(chunk.alpha[t] + p.dt[head]));
  factors.take[t] = p.share * sigmoid(chunk.beta[t]);
  factors.q[t] = 1.0f / sqrtf((squares[0] + 1e-6f) * static_cast<float>(p.key_dim));
  factors.k[t] = 1.0f / sqrtf(squares[1] + 1e-6f);
}

// The j-th row of a column in a lane; rows are in groups of four neighbours.
__device__ __forceinline__ int row_of(int j, int lane) { return 4 * kColumnLanes * (j / 4) + 4 * lane + j % 4; }

template <int kPer>
__device__ __forceinline__ void load_rows(float (&to)[kPer], const float* from, int lane) {
#pragma unroll
  for (int j = 0; j < kPer; j += 4) {
    const float4 v = *reinterpret_cast<const float4*>(from + row_of(j, lane));
    to[j] = v.x, to[j + 1] = v.y, to[j + 2] = v.z, to[j + 3] = v.w;
  }
}

template <int kPer>
__device__ __forceinline__ float dot_rows(const float (&a)[kPer], const float (&b)[kPer]) {
  float sums[4] = {};
#pragma unroll
  for (int j = 0; j < kPer; ++j) sums[j % 4] = fmaf(a[j], b[j], sums[j % 4]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Processes 16 columns of a head's matrix through all tokens of a sequence. The next chunk is copied while the current
// chunk is used. A token's q S and the next token's k S are sums over the same matrix, and are computed together.
template <int kPer, bool kPacks>
__global__ void __launch_bounds__(kDeltaThreads) delta_kernel(const __grid_constant__ Delta p) {
  using C = Chunk<kPer>;
  __shared__ __align__(16) C chunks[2];
  __shared__ Factors<C::kTokens> factors;
  start_dependent();
  const int head = blockIdx.y, seq = blockIdx.z, lane = threadIdx.x % kColumnLanes, local = threadIdx.x / kColumnLanes;
  const int column = static_cast<int>(blockIdx.x) * kColumns + local;
  const bool writes = column < p.value_dim;  // lanes past the last column only take part in shuffles
  const int begin = p.batch.q_start[seq], end = p.batch.q_start[seq + 1], in = p.batch.state_in[seq];
  if (end - begin >= p.fewest_chunked) return;
  copy_chunk<kPer, kPacks>(chunks[0], p, head, begin, min(C::kTokens, end - begin));
  const int64_t place = (int64_t{head} * p.value_dim + (writes ? column : 0)) * p.key_dim;
  float s[kPer];
  const float* before = p.states.data + in * p.states.slot_floats + place;
#pragma unroll
  for (int j = 0; j < kPer; ++j) s[j] = in >= 0 && row_of(j, lane) < p.key_dim ? before[row_of(j, lane)] : 0.0f;
  int at = 0;
  for (int first = begin; first < end; first += C::kTokens, at ^= 1) {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    const C& chunk = chunks[at];
    const int n = min(C::kTokens, end - first), n_next = min(C::kTokens, end - first - n);
    copy_chunk<kPer, kPacks>(chunks[at ^ 1], p, head, first + n, n_next);
    find_factors<kPer>(factors, chunk, p, head, n);
    __syncthreads();
    float k[kPer];
    load_rows(k, chunk.qk[0][1], lane);
    float known = sum_of_column(dot_rows(k, s));
    for (int t = 0; t < n; ++t) {
      float q[kPer];
      load_rows(q, chunk.qk[t][0], lane);
      const float keep = factors.keep[t], k_scale = factors.k[t];
      const float change = factors.take[t] * (chunk.v[t][local] - keep * k_scale * known) * k_scale;
#pragma unroll
      for (int j = 0; j < kPer; ++j) s[j] = fmaf(k[j], change, keep * s[j]);
      load_rows(k, chunk.qk[min(t + 1, n - 1)][1], lane);
      known = dot_rows(k, s);
      float out = dot_rows(q, s);
#pragma unroll
      for (int i = kColumnLanes / 2; i > 0; i /= 2) {
        known += __shfl_xor_sync(0xFFFFFFFFu, known, i);
        out += __shfl_xor_sync(0xFFFFFFFFu, out, i);
      }
      if (writes && lane == 0) p.y[(first + t) * p.y_stride + head * p.value_dim + column] = out * factors.q[t];
    }
  }
  if (!writes) return;
  float* after = p.states.data + p.batch.state_out[seq] * p.states.slot_floats + place;
#pragma unroll
  for (int j = 0; j < kPer; ++j)
    if (row_of(j, lane) < p.key_dim) after[row_of(j, lane)] = s[j];
}

template <bool kPacks>
void start_delta(const Delta& p, int n_seqs, Device& device) {
  const dim3 grid(blocks_for(p.value_dim, kColumns), static_cast<unsigned>(p.n_heads), static_cast<unsigned>(n_seqs));
  const auto start = [&](auto kernel) { launch(device, kernel, grid, kDeltaThreads, 0, p); };
  p.key_dim <= 4 * kColumnLanes    ? start(delta_kernel<4, kPacks>)
  : p.key_dim <= 16 * kColumnLanes ? start(delta_kernel<16, kPacks>)
                                   : start(delta_kernel<32, kPacks>);
}

}  // namespace

void gate_rows(const Tensor& x, const Tensor& gate, Device& device) {
  const int64_t n = x.rows * x.cols;
  if (n == 0) return;
  with_type(x.dtype, [&](auto* px) {
    with_type(gate.dtype, [&](auto* pg) {
      using X = std::remove_pointer_t<decltype(px)>;
      using G = std::remove_pointer_t<decltype(pg)>;
      launch(device, gate_kernel<X, G>, dim3(blocks_for(n, kThreads)), kThreads, 0, static_cast<X*>(x.data), x.stride,
             static_cast<const G*>(gate.data), gate.stride, x.cols, n);
    });
  });
}

int64_t conv_edge_floats(int64_t n_channels, int width, int n_tokens, int n_seqs) {
  return (n_tokens / kConvPart + n_seqs + 1) * n_channels * (width - 1);
}

void short_conv(const ShortConvArgs& a, const DeviceStates& states, const DeviceBatch& batch, int n_seqs,
                int most_tokens, float* edges, Device& device) {
  if (n_seqs == 0) return;
  const Tensor &x = a.x, &weight = a.weight;
  const auto floats = [](const Tensor& t) { return t ? t.f32() : nullptr; };
  const Conv p{.x = x.f32(),
               .x_stride = x.stride,
               .weight = weight.f32(),
               .weight_stride = weight.stride,
               .width = static_cast<int>(weight.cols),
               .n_channels = static_cast<int>(x.cols),
               .edges = edges,
               .bias = floats(a.bias),
               .in_gate = floats(a.in_gate),
               .out_gate = floats(a.out_gate),
               .in_stride = a.in_gate.stride,
               .out_stride = a.out_gate.stride,
               .silu = a.silu,
               .states = states,
               .batch = batch};
  CHECK(p.width <= kMaxConvWidth);
  const unsigned n_parts = edges != nullptr ? blocks_for(most_tokens, kConvPart) : 1,
                 seqs = static_cast<unsigned>(n_seqs);
  if (n_parts > 1) launch(device, edge_kernel, dim3(blocks_for(x.cols, kThreads), n_parts, seqs), kThreads, 0, p);
  const dim3 grid(blocks_for(p.n_channels, kConvThreads), seqs, n_parts);
  p.width <= 4 ? launch(device, conv_kernel<4>, grid, kConvThreads, 0, p)
               : launch(device, conv_kernel<kMaxConvWidth>, grid, kConvThreads, 0, p);
}

void delta_rule(const DeltaRuleArgs& a, const DeviceStates& states, const DeviceBatch& batch, int n_seqs,
                int fewest_tokens, int most_tokens, bool chunks, Device& device) {
  if (n_seqs == 0) return;
  const StateBuffer& s = a.states->buffer(a.buffer);
  const int n_heads = static_cast<int>(s.count), key_dim = static_cast<int>(s.rows), value_dim = static_cast<int>(s.cols);
  CHECK(key_dim <= kMaxKeyDim);
  Delta p{a.y.f32(),    a.qkv.f32(),   a.beta.f32(),   a.alpha.f32(), a.decay.f32(), a.dt.f32(), a.y.stride,
          a.qkv.stride, a.beta.stride, a.alpha.stride, n_heads,       a.n_key_heads, key_dim,    value_dim,
          a.tiled,      false,         INT32_MAX,      a.share,       states,     batch};
  p.packs = key_dim % 4 == 0 && a.qkv.stride % 4 == 0 && reinterpret_cast<uintptr_t>(p.qkv) % 16 == 0;
  if (chunks && most_tokens >= kChunkedTokens && can_chunk(device, p)) {
    p.fewest_chunked = kChunkedTokens;
    delta_chunks(p, n_seqs, most_tokens, device);
    if (fewest_tokens >= kChunkedTokens) return;
  }
  p.packs ? start_delta<true>(p, n_seqs, device) : start_delta<false>(p, n_seqs, device);
}

}  // namespace ingot::cuda
