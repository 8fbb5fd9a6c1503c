// Recurrences that decay by a factor for each row of a head's matrix and change by two products of vectors, token by
// token, and their inputs for Kimi's delta attention. A warp handles a few columns of a head's matrix: its lanes have
// the rows in registers. So a token's result never depends on the batch. The inputs of the next tokens are read while
// some tokens are computed.
#include "backend/cuda/launch.cuh"
#include "backend/cuda/recurrence/recurrence.cuh"
#include "backend/cuda/recurrence/recurrence.h"

namespace ingot::cuda {

using namespace recurrence;

namespace {

constexpr int kRuleThreads = 128, kRuleLanes = 32, kRuleWarps = kRuleThreads / kRuleLanes;
constexpr int kWarpColumns = 4, kBlockColumns = kRuleWarps * kWarpColumns;

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int i = kRuleLanes / 2; i > 0; i /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, i);
  return v;
}

struct KdaInputs {
  float *q, *k, *keep, *a, *b;
  const float *beta, *decay, *dt;
  int64_t q_stride, k_stride, keep_stride, a_stride, b_stride, beta_stride;
  int n_heads, head_dim;
};

// A warp handles a head of a token.
__global__ void __launch_bounds__(kRuleLanes) kda_inputs_kernel(const __grid_constant__ KdaInputs p) {
  start_dependent();
  constexpr int kMost = kMaxKeyDim / kRuleLanes;
  const int64_t t = blockIdx.x;
  const int head = blockIdx.y, first = head * p.head_dim;
  float *q = p.q + t * p.q_stride + first, *k = p.k + t * p.k_stride + first,
        *keep = p.keep + t * p.keep_stride + first, *a = p.a + t * p.a_stride + first,
        *b = p.b + t * p.b_stride + first;
  float qs[kMost], ks[kMost], q_squares = 0, k_squares = 0;
#pragma unroll
  for (int j = 0; j < kMost; ++j) {
    const int row = j * kRuleLanes + threadIdx.x;
    qs[j] = row < p.head_dim ? q[row] : 0.0f, ks[j] = row < p.head_dim ? k[row] : 0.0f;
    q_squares = fmaf(qs[j], qs[j], q_squares), k_squares = fmaf(ks[j], ks[j], k_squares);
  }
  const float q_scale = 1.0f / sqrtf((warp_sum(q_squares) + 1e-6f) * static_cast<float>(p.head_dim)),
              k_scale = 1.0f / sqrtf(warp_sum(k_squares) + 1e-6f), decay = p.decay[head],
              beta = sigmoid(p.beta[t * p.beta_stride + head]);
#pragma unroll
  for (int j = 0; j < kMost; ++j) {
    const int row = j * kRuleLanes + threadIdx.x;
    if (row >= p.head_dim) break;
    const float factor = expf(decay * softplus(keep[row] + p.dt[first + row])), key = ks[j] * k_scale;
    q[row] = qs[j] * q_scale;
    keep[row] = factor;
    a[row] = factor * key;
    k[row] = beta * key;
    b[row] = -beta * key;
  }
}

struct RankOne {
  float* y;
  const float *q, *keep, *a, *b, *k, *v;
  int64_t y_stride, q_stride, keep_stride, a_stride, b_stride, k_stride, v_stride;
  int key_dim, value_dim;
  DeviceStates states;
  DeviceBatch batch;
};

// kPer: rows of the matrix in a lane.
template <int kPer>
struct RuleInputs {
  float q[kPer], keep[kPer], a[kPer], b[kPer], k[kPer], v[kWarpColumns];

  __device__ void read(const RankOne& p, int64_t t, int head, const int (&rows)[kPer],
                       const int (&columns)[kWarpColumns]) {
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      const bool is_row = rows[j] < p.key_dim;
      const int64_t at = int64_t{head} * p.key_dim + rows[j];
      q[j] = is_row ? p.q[t * p.q_stride + at] : 0.0f;
      keep[j] = is_row ? p.keep[t * p.keep_stride + at] : 0.0f;
      a[j] = is_row ? p.a[t * p.a_stride + at] : 0.0f;
      b[j] = is_row ? p.b[t * p.b_stride + at] : 0.0f;
      k[j] = is_row ? p.k[t * p.k_stride + at] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kWarpColumns; ++i) v[i] = p.v[t * p.v_stride + int64_t{head} * p.value_dim + columns[i]];
  }

  // Changes the columns s of the matrix, and reads them.
  __device__ __forceinline__ void apply(float (&s)[kWarpColumns][kPer], float (&out)[kWarpColumns]) const {
#pragma unroll
    for (int i = 0; i < kWarpColumns; ++i) {
      float known = 0;
#pragma unroll
      for (int j = 0; j < kPer; ++j) known = fmaf(a[j], s[i][j], known);
      known = warp_sum(known);
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kPer; ++j) {
        s[i][j] = fmaf(keep[j], s[i][j], fmaf(b[j], known, k[j] * v[i]));
        sum = fmaf(q[j], s[i][j], sum);
      }
      out[i] = warp_sum(sum);
    }
  }
};

// kAhead: tokens whose inputs are read at once.
template <int kPer, int kAhead>
__global__ void __launch_bounds__(kRuleThreads) rank_one_kernel(const __grid_constant__ RankOne p) {
  start_dependent();
  const int lane = threadIdx.x % kRuleLanes, head = blockIdx.y, seq = blockIdx.z,
            first = static_cast<int>(blockIdx.x) * kBlockColumns + threadIdx.x / kRuleLanes * kWarpColumns;
  if (first >= p.value_dim) return;  // a whole warp
  const int begin = p.batch.q_start[seq], end = p.batch.q_start[seq + 1], in = p.batch.state_in[seq];
  int rows[kPer], columns[kWarpColumns];
#pragma unroll
  for (int j = 0; j < kPer; ++j) rows[j] = j * kRuleLanes + lane;
#pragma unroll
  for (int i = 0; i < kWarpColumns; ++i) columns[i] = min(first + i, p.value_dim - 1);
  const auto place = [&](int i, int j) {
    return (int64_t{head} * p.value_dim + columns[i]) * p.key_dim + rows[j];
  };
  const float* before = p.states.data + in * p.states.slot_floats;
  float s[kWarpColumns][kPer];
#pragma unroll
  for (int i = 0; i < kWarpColumns; ++i)
#pragma unroll
    for (int j = 0; j < kPer; ++j) s[i][j] = in >= 0 && rows[j] < p.key_dim ? before[place(i, j)] : 0.0f;
  RuleInputs<kPer> next[kAhead];
  const auto read = [&](int64_t t) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (t + i < end) next[i].read(p, t + i, head, rows, columns);
  };
  read(begin);
  for (int64_t t = begin; t < end; t += kAhead) {
    RuleInputs<kPer> tokens[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) tokens[i] = next[i];
    read(t + kAhead);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (t + i >= end) break;
      float out[kWarpColumns];
      tokens[i].apply(s, out);
#pragma unroll
      for (int j = 0; j < kWarpColumns; ++j)
        if (lane == j && first + j < p.value_dim)
          p.y[(t + i) * p.y_stride + int64_t{head} * p.value_dim + columns[j]] = out[j];
    }
  }
  float* after = p.states.data + p.batch.state_out[seq] * p.states.slot_floats;
#pragma unroll
  for (int i = 0; i < kWarpColumns; ++i)
#pragma unroll
    for (int j = 0; j < kPer; ++j)
      if (rows[j] < p.key_dim && first + i < p.value_dim) after[place(i, j)] = s[i][j];
}

}  // namespace

void kda_inputs(const KdaInputsArgs& a, Device& device) {
  if (a.q.rows == 0) return;
  const KdaInputs p{.q = a.q.f32(),
                    .k = a.k.f32(),
                    .keep = a.keep.f32(),
                    .a = a.a.f32(),
                    .b = a.b.f32(),
                    .beta = a.beta.f32(),
                    .decay = a.decay.f32(),
                    .dt = a.dt.f32(),
                    .q_stride = a.q.stride,
                    .k_stride = a.k.stride,
                    .keep_stride = a.keep.stride,
                    .a_stride = a.a.stride,
                    .b_stride = a.b.stride,
                    .beta_stride = a.beta.stride,
                    .n_heads = static_cast<int>(a.beta.cols),
                    .head_dim = static_cast<int>(a.q.cols / a.beta.cols)};
  launch(device, kda_inputs_kernel, dim3(static_cast<unsigned>(a.q.rows), static_cast<unsigned>(p.n_heads)),
         kRuleLanes, 0, p);
}

void rank_one_rule(const RankOneRuleArgs& a, const DeviceStates& states, const DeviceBatch& batch, int n_seqs,
                   int most_tokens, Device& device) {
  if (n_seqs == 0) return;
  const StateBuffer& s = a.states->buffer(a.buffer);
  const RankOne p{.y = a.y.f32(),
                  .q = a.q.f32(),
                  .keep = a.keep.f32(),
                  .a = a.a.f32(),
                  .b = a.b.f32(),
                  .k = a.k.f32(),
                  .v = a.v.f32(),
                  .y_stride = a.y.stride,
                  .q_stride = a.q.stride,
                  .keep_stride = a.keep.stride,
                  .a_stride = a.a.stride,
                  .b_stride = a.b.stride,
                  .k_stride = a.k.stride,
                  .v_stride = a.v.stride,
                  .key_dim = static_cast<int>(s.rows),
                  .value_dim = static_cast<int>(s.cols),
                  .states = states,
                  .batch = batch};
  const dim3 grid(blocks_for(p.value_dim, kBlockColumns), static_cast<unsigned>(s.count),
                  static_cast<unsigned>(n_seqs));
  const auto start = [&](auto kernel) { launch(device, kernel, grid, kRuleThreads, 0, p); };
  static_assert(kMaxKeyDim <= 8 * kRuleLanes);
  const bool is_long = most_tokens >= kManyTokens;
  if (p.key_dim <= 2 * kRuleLanes) return is_long ? start(rank_one_kernel<2, 4>) : start(rank_one_kernel<2, 1>);
  if (p.key_dim <= 4 * kRuleLanes) return is_long ? start(rank_one_kernel<4, 2>) : start(rank_one_kernel<4, 1>);
  start(rank_one_kernel<8, 1>);
}

}  // namespace ingot::cuda
