// Recurrences that decay by a factor for each row of a head's matrix and change by two products of vectors, token by
// token, and their inputs for Kimi's delta attention. A few lanes have some columns of a head's matrix in registers,
// and sum their shares. So a token's result never depends on the batch.
#include "backend/cuda/recurrence/columns.cuh"
#include "backend/cuda/recurrence/rank_one.cuh"
#include "backend/cuda/recurrence/recurrence.cuh"
#include "backend/cuda/recurrence/recurrence.h"

namespace ingot::cuda {

using namespace recurrence;

namespace {

constexpr int kHeadLanes = 32, kRuleThreads = 64;
// Each row that a lane loads serves two columns, because loads from shared memory decide the speed.
constexpr int kLaneColumns = 2, kBlockColumns = kRuleThreads / kColumnLanes * kLaneColumns;

struct KdaInputs {
  float *q, *k, *keep, *a, *b;
  const float *beta, *decay, *dt;
  int64_t q_stride, k_stride, keep_stride, a_stride, b_stride, beta_stride;
  int n_heads, head_dim;
};

// A warp handles a head of a token.
__global__ void __launch_bounds__(kHeadLanes) kda_inputs_kernel(const __grid_constant__ KdaInputs p) {
  start_dependent();
  constexpr int kMost = kMaxKeyDim / kHeadLanes;
  const int64_t t = blockIdx.x;
  const int head = blockIdx.y, first = head * p.head_dim;
  float *q = p.q + t * p.q_stride + first, *k = p.k + t * p.k_stride + first,
        *keep = p.keep + t * p.keep_stride + first, *a = p.a + t * p.a_stride + first,
        *b = p.b + t * p.b_stride + first;
  float qs[kMost], ks[kMost], q_squares = 0, k_squares = 0;
#pragma unroll
  for (int j = 0; j < kMost; ++j) {
    const int row = j * kHeadLanes + threadIdx.x;
    qs[j] = row < p.head_dim ? q[row] : 0.0f, ks[j] = row < p.head_dim ? k[row] : 0.0f;
    q_squares = fmaf(qs[j], qs[j], q_squares), k_squares = fmaf(ks[j], ks[j], k_squares);
  }
  const float q_scale = 1.0f / sqrtf((warp_sum(q_squares) + 1e-6f) * static_cast<float>(p.head_dim)),
              k_scale = 1.0f / sqrtf(warp_sum(k_squares) + 1e-6f), decay = p.decay[head],
              beta = sigmoid(p.beta[t * p.beta_stride + head]);
#pragma unroll
  for (int j = 0; j < kMost; ++j) {
    const int row = j * kHeadLanes + threadIdx.x;
    if (row >= p.head_dim) break;
    const float factor = expf(decay * softplus(keep[row] + p.dt[first + row])), key = ks[j] * k_scale;
    q[row] = qs[j] * q_scale;
    keep[row] = factor;
    a[row] = factor * key;
    k[row] = beta * key;
    b[row] = -beta * key;
  }
}

// The inputs of a few tokens in shared memory. Rows past the last are zeros.
template <int kRows, int kTokens>
struct RuleTokens {
  float q[kTokens][kRows], keep[kTokens][kRows], a[kTokens][kRows], b[kTokens][kRows], k[kTokens][kRows];
  float v[kTokens][kBlockColumns];
};

template <bool kPacks, int kRows, int kTokens>
__device__ __forceinline__ void copy_tokens(RuleTokens<kRows, kTokens>& to, const RankOne& p, int head, int64_t first,
                                            int n) {
  const int64_t row = int64_t{head} * p.key_dim;
  copy_rows<kPacks>(to.q, p.q + first * p.q_stride + row, p.q_stride, n, p.key_dim, kRuleThreads);
  copy_rows<kPacks>(to.keep, p.keep + first * p.keep_stride + row, p.keep_stride, n, p.key_dim, kRuleThreads);
  copy_rows<kPacks>(to.a, p.a + first * p.a_stride + row, p.a_stride, n, p.key_dim, kRuleThreads);
  copy_rows<kPacks>(to.b, p.b + first * p.b_stride + row, p.b_stride, n, p.key_dim, kRuleThreads);
  copy_rows<kPacks>(to.k, p.k + first * p.k_stride + row, p.k_stride, n, p.key_dim, kRuleThreads);
  const int first_column = static_cast<int>(blockIdx.x) * kBlockColumns;
  copy_rows<false>(to.v, p.v + first * p.v_stride + int64_t{head} * p.value_dim + first_column, p.v_stride, n,
                   p.value_dim - first_column, kRuleThreads);
  end_copies();
}

// kPer: rows of the matrix in a lane. The next tokens are copied while some tokens are used. A token's q S and the next
// token's a S are sums over the same matrix, and are made together.
template <int kPer, int kTokens, bool kPacks>
__global__ void __launch_bounds__(kRuleThreads) rank_one_kernel(const __grid_constant__ RankOne p) {
  using Tokens = RuleTokens<kPer * kColumnLanes, kTokens>;
  __shared__ __align__(16) Tokens chunks[2];
  start_dependent();
  const int lane = threadIdx.x % kColumnLanes, head = blockIdx.y, seq = blockIdx.z,
            local = static_cast<int>(threadIdx.x) / kColumnLanes * kLaneColumns,
            column = static_cast<int>(blockIdx.x) * kBlockColumns + local;
  const int n_columns = min(kLaneColumns, p.value_dim - column);  // lanes past the last column only take part in sums
  const int start = p.batch.q_start[seq], end = p.batch.q_start[seq + 1],
            n_chunked = end - start >= p.fewest_chunked ? (end - start) / kRuleChunk * kRuleChunk : 0,
            begin = start + n_chunked, in = n_chunked > 0 ? p.batch.state_out[seq] : p.batch.state_in[seq];
  if (n_chunked > 0 && begin == end) return;
  copy_tokens<kPacks>(chunks[0], p, head, begin, min(kTokens, end - begin));
  const int64_t of_column = int64_t{head} * p.value_dim + column, place = of_column * p.key_dim;
  const float* before = p.states.data + in * p.states.slot_floats + place;
  float s[kLaneColumns][kPer];
#pragma unroll
  for (int i = 0; i < kLaneColumns; ++i)
    load_column<kPacks>(s[i], before + i * p.key_dim, lane, in >= 0 && i < n_columns ? p.key_dim : 0);
  float* y = p.y + begin * p.y_stride + of_column;
  int at = 0;
  for (int first = begin; first < end; first += kTokens, at ^= 1) {
    await_copies<0>();
    __syncthreads();
    const Tokens& chunk = chunks[at];
    const int n = min(kTokens, end - first);
    copy_tokens<kPacks>(chunks[at ^ 1], p, head, first + n, min(kTokens, end - first - n));
    float a[kPer], sums[2 * kLaneColumns];  // a S of each column, then q S
    load_rows(a, chunk.a[0], lane);
#pragma unroll
    for (int i = 0; i < kLaneColumns; ++i) sums[i] = dot_rows(a, s[i]), sums[kLaneColumns + i] = 0;
    sum_lanes(sums);
    for (int t = 0; t < n; ++t, y += p.y_stride) {
      float q[kPer], keep[kPer], b[kPer], k[kPer];
      load_rows(keep, chunk.keep[t], lane);
      load_rows(b, chunk.b[t], lane);
      load_rows(k, chunk.k[t], lane);
      load_rows(q, chunk.q[t], lane);
      load_rows(a, chunk.a[min(t + 1, n - 1)], lane);
#pragma unroll
      for (int i = 0; i < kLaneColumns; ++i) {
        const float v = chunk.v[t][local + i];
#pragma unroll
        for (int j = 0; j < kPer; ++j) s[i][j] = fmaf(b[j], sums[i], fmaf(keep[j], s[i][j], k[j] * v));
      }
#pragma unroll
      for (int i = 0; i < kLaneColumns; ++i) sums[i] = dot_rows(a, s[i]), sums[kLaneColumns + i] = dot_rows(q, s[i]);
      sum_lanes(sums);
#pragma unroll
      for (int i = 0; i < kLaneColumns; ++i)
        if (lane == i && i < n_columns) y[i] = sums[kLaneColumns + i];
    }
  }
  float* after = p.states.data + p.batch.state_out[seq] * p.states.slot_floats + place;
#pragma unroll
  for (int i = 0; i < kLaneColumns; ++i)
    if (i < n_columns) store_column<kPacks>(after + i * p.key_dim, s[i], lane, p.key_dim);
}

// True if all inputs and states can be read 16 bytes at a time.
bool packs(const RankOneRuleArgs& a, const DeviceStates& states, int key_dim) {
  return packs_columns(states, key_dim) && packs_rows(a.q) && packs_rows(a.keep) && packs_rows(a.a) &&
         packs_rows(a.b) && packs_rows(a.k);
}

// kTokens: of long sequences, so that two chunks fit in 48 KiB.
template <int kPer, int kTokens>
void start_rule(const RankOne& p, dim3 grid, bool is_long, bool packs, Device& device) {
  with_chunks<kTokens>(is_long, packs, [&](auto tokens, auto is_packed) {
    launch(device, rank_one_kernel<kPer, decltype(tokens)::value, decltype(is_packed)::value>, grid, kRuleThreads, 0,
           p);
  });
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
         kHeadLanes, 0, p);
}

void rank_one_rule(const RankOneRuleArgs& a, const DeviceStates& states, const DeviceBatch& batch, int n_seqs,
                   int most_tokens, bool chunks, Device& device) {
  if (n_seqs == 0) return;
  const StateBuffer& s = a.states->buffer(a.buffer);
  RankOne p{.y = a.y.f32(),
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
            .n_heads = static_cast<int>(s.count),
            .key_dim = static_cast<int>(s.rows),
            .value_dim = static_cast<int>(s.cols),
            .fewest_chunked = INT32_MAX,
            .states = states,
            .batch = batch};
  if (chunks && most_tokens >= kFewestRuleTokens && can_chunk_rule(a, p)) {
    p.fewest_chunked = kFewestRuleTokens;
    rule_chunks(p, n_seqs, most_tokens, device);
  }
  const dim3 grid(blocks_for(p.value_dim, kBlockColumns), static_cast<unsigned>(s.count),
                  static_cast<unsigned>(n_seqs));
  static_assert(kMaxKeyDim <= 32 * kColumnLanes);
  const bool is_long = most_tokens >= kManyTokens, is_packed = packs(a, states, p.key_dim);
  p.key_dim <= 8 * kColumnLanes    ? start_rule<8, 16>(p, grid, is_long, is_packed, device)
  : p.key_dim <= 16 * kColumnLanes ? start_rule<16, 8>(p, grid, is_long, is_packed, device)
                                   : start_rule<32, 4>(p, grid, is_long, is_packed, device);
}

}  // namespace ingot::cuda
