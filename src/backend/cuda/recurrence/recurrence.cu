// Gates, short convolutions and the gated delta rule. Threads process the tokens of a sequence in order (in a
// convolution, the tokens of a part of the sequence). So a token's result never depends on the batch. Each thread keeps
// its share of the state in registers, and the inputs of the next tokens in flight. delta_chunks.cu has the rule for
// many tokens at once.
#include "backend/cuda/recurrence/columns.cuh"
#include "backend/cuda/recurrence/recurrence.cuh"
#include "backend/cuda/recurrence/wide.cuh"

namespace ingot::cuda {

using namespace recurrence;

namespace {

constexpr int kThreads = 256;
constexpr int kConvThreads = 64;
constexpr int kConvPart = 16;  // tokens of a block if a sequence has many
constexpr int kDeltaThreads = 128, kColumns = kDeltaThreads / kColumnLanes;

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

// The inputs of kWide channels of a token.
template <int kWide>
__device__ __forceinline__ void load_inputs(float (&to)[kWide], const Conv& p, int64_t token, int channel) {
  load_wide(to, p.x + token * p.x_stride + channel);
  if (p.in_gate == nullptr) return;
  float gates[kWide];
  load_wide(gates, p.in_gate + token * p.in_stride + channel);
#pragma unroll
  for (int k = 0; k < kWide; ++k) to[k] *= gates[k];
}

// A thread handles kWide channels of a sequence, or of a part of it. Weights and inputs are at the end of arrays of
// kMaxWidth, after zeros.
template <int kMaxWidth, int kWide>
__global__ void __launch_bounds__(kConvThreads) conv_kernel(const __grid_constant__ Conv p) {
  constexpr int kAhead = kWide > 1 ? 8 : 16;  // tokens loaded ahead
  start_dependent();
  const int c = (static_cast<int>(blockIdx.x) * kConvThreads + threadIdx.x) * kWide, seq = blockIdx.y,
            none = kMaxWidth - p.width;
  if (c >= p.n_channels) return;
  const int start = p.batch.q_start[seq], begin = start + static_cast<int>(blockIdx.z) * kConvPart,
            end = p.batch.q_start[seq + 1];
  if (begin >= end) return;
  const int n = p.edges != nullptr ? min(kConvPart, end - begin) : end - begin;
  const float* before = p.edges != nullptr ? p.edge_of(begin, seq) : p.state_of(seq);
  float weights[kMaxWidth][kWide], window[kMaxWidth][kWide], bias[kWide] = {};  // the token is the last of window
#pragma unroll
  for (int i = 0; i < kMaxWidth; ++i) {
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      weights[i][k] = i >= none ? p.weight[(c + k) * p.weight_stride + i - none] : 0.0f;
      window[i][k] = 0;
    }
    if (before != nullptr && i >= none && i < kMaxWidth - 1)
      load_wide(window[i], before + int64_t{i - none} * p.n_channels + c);
  }
  if (p.bias != nullptr) load_wide(bias, p.bias + c);
  float next[kAhead][kWide] = {};
  const auto load = [&](int first) {
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
      if (first + j < n) load_inputs(next[j], p, begin + first + j, c);
  };
  const auto use = [&](const float (&input)[kWide], int t) {
    float sums[kWide], gates[kWide];
    if (p.out_gate != nullptr) load_wide(gates, p.out_gate + (begin + t) * p.out_stride + c);
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      window[kMaxWidth - 1][k] = input[k];
      float sum = bias[k];
#pragma unroll
      for (int i = 0; i < kMaxWidth; ++i)
        if (i >= none) sum = fmaf(weights[i][k], window[i][k], sum);
      if (p.silu) sum = __fdividef(sum, 1.0f + __expf(-sum));
      sums[k] = p.out_gate != nullptr ? sum * gates[k] : sum;
#pragma unroll
      for (int i = 0; i + 1 < kMaxWidth; ++i) window[i][k] = window[i + 1][k];
    }
    store_wide(p.x + (begin + t) * p.x_stride + c, sums);
  };
  load(0);
  for (int first = 0; first < n; first += kAhead) {
    float inputs[kAhead][kWide];
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
#pragma unroll
      for (int k = 0; k < kWide; ++k) inputs[j][k] = next[j][k];
    load(first + kAhead);  // before the stores, because loads after them would wait
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
      if (first + j < n) use(inputs[j], first + j);
  }
  if (begin + n < end) return;
  float* after = p.states.data + p.batch.state_out[seq] * p.states.slot_floats + c;
#pragma unroll
  for (int i = 0; i + 1 < kMaxWidth; ++i)
    if (i >= none) store_wide(after + int64_t{i - none} * p.n_channels, window[i]);
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
    kPacks ? copy16(&chunk.qk[t][which][row], from, in) : copy_float(&chunk.qk[t][which][row], from, in);
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
  end_copies();
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
  }
  sum_lanes(squares);
  if (lane > 0 || t >= n) return;
  factors.keep[t] = expf(p.decay[head] * softplus(chunk.alpha[t] + p.dt[head]));
  factors.take[t] = p.share * sigmoid(chunk.beta[t]);
  factors.q[t] = 1.0f / sqrtf((squares[0] + 1e-6f) * static_cast<float>(p.key_dim));
  factors.k[t] = 1.0f / sqrtf(squares[1] + 1e-6f);
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
  load_column<kPacks>(s, before, lane, in >= 0 ? p.key_dim : 0);
  int at = 0;
  for (int first = begin; first < end; first += C::kTokens, at ^= 1) {
    await_copies<0>();
    __syncthreads();
    const C& chunk = chunks[at];
    const int n = min(C::kTokens, end - first), n_next = min(C::kTokens, end - first - n);
    copy_chunk<kPer, kPacks>(chunks[at ^ 1], p, head, first + n, n_next);
    find_factors<kPer>(factors, chunk, p, head, n);
    __syncthreads();
    float k[kPer], sums[2];  // k S, q S
    load_rows(k, chunk.qk[0][1], lane);
    sums[0] = dot_rows(k, s), sums[1] = 0;
    sum_lanes(sums);
    for (int t = 0; t < n; ++t) {
      float q[kPer];
      load_rows(q, chunk.qk[t][0], lane);
      const float keep = factors.keep[t], k_scale = factors.k[t];
      const float change = factors.take[t] * (chunk.v[t][local] - keep * k_scale * sums[0]) * k_scale;
#pragma unroll
      for (int j = 0; j < kPer; ++j) s[j] = fmaf(k[j], change, keep * s[j]);
      load_rows(k, chunk.qk[min(t + 1, n - 1)][1], lane);
      sums[0] = dot_rows(k, s), sums[1] = dot_rows(q, s);
      sum_lanes(sums);
      if (writes && lane == 0) p.y[(first + t) * p.y_stride + head * p.value_dim + column] = sums[1] * factors.q[t];
    }
  }
  if (!writes) return;
  float* after = p.states.data + p.batch.state_out[seq] * p.states.slot_floats + place;
  store_column<kPacks>(after, s, lane, p.key_dim);
}

template <bool kPacks>
void start_delta(const Delta& p, int n_seqs, Device& device) {
  const dim3 grid(blocks_for(p.value_dim, kColumns), static_cast<unsigned>(p.n_heads), static_cast<unsigned>(n_seqs));
  const auto start = [&](auto kernel) { launch(device, kernel, grid, kDeltaThreads, 0, p); };
  p.key_dim <= 4 * kColumnLanes    ? start(delta_kernel<4, kPacks>)
  : p.key_dim <= 16 * kColumnLanes ? start(delta_kernel<16, kPacks>)
                                   : start(delta_kernel<32, kPacks>);
}

// True if neighbouring channels can be read at once.
bool is_wide(const ShortConvArgs& a, const DeviceStates& states) {
  const auto packs = [](const Tensor& t) { return !t || packs_rows(t); };
  return packs_columns(states, static_cast<int>(a.x.cols)) && packs(a.x) && packs(a.in_gate) && packs(a.out_gate) &&
         (!a.bias || reinterpret_cast<uintptr_t>(a.bias.data) % 16 == 0);
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
  const auto start = [&](auto kernel, int channels) {
    launch(device, kernel, dim3(blocks_for(p.n_channels, kConvThreads * channels), seqs, n_parts), kConvThreads, 0, p);
  };
  if (p.width > 4) return start(conv_kernel<kMaxConvWidth, 1>, 1);
  most_tokens >= kManyTokens&& is_wide(a, states) ? start(conv_kernel<4, 2>, 2) : start(conv_kernel<4, 1>, 1);
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
  p.packs = packs_columns(states, key_dim) && packs_rows(a.qkv);
  if (chunks && most_tokens >= kChunkedTokens && can_chunk(device, p)) {
    p.fewest_chunked = kChunkedTokens;
    delta_chunks(p, n_seqs, most_tokens, device);
    if (fewest_tokens >= kChunkedTokens) return;
  }
  p.packs ? start_delta<true>(p, n_seqs, device) : start_delta<false>(p, n_seqs, device);
}

}  // namespace ingot::cuda
