// All of RWKV-7's mixer between its products, for sequences of one token: the inputs of the rule, the rule, and its
// outputs (rwkv7.cu and rank_one.cu do the same in three launches). A block has a head of a sequence, with the whole
// matrix in registers. The matrix is read before the previous kernel has ended, because only this kernel writes it.
#include "backend/cuda/recurrence/columns.cuh"
#include "backend/cuda/recurrence/recurrence.cuh"

namespace ingot::cuda {

using namespace recurrence;

namespace {

constexpr int kTokenDim = 64, kTokenThreads = 128, kTokenColumns = kTokenThreads / kColumnLanes,
              kTokenPasses = kTokenDim / kTokenColumns, kTokenPer = kTokenDim / kColumnLanes;

template <class Y>
struct Wkv7Token {
  Y* y;
  float* v_first;  // written if there is no v_gate
  const float *q, *keep, *rate, *k, *v, *v_gate, *k_k, *k_a, *r_k, *gate, *weight, *bias;
  int64_t y_stride, v_first_stride, q_stride, keep_stride, rate_stride, k_stride, v_stride, v_gate_stride, gate_stride;
  float eps;
  DeviceStates states;
  DeviceBatch batch;
};

// The vectors of a head.
struct HeadVectors {
  __align__(16) float q[kTokenDim], keep[kTokenDim], a[kTokenDim], b[kTokenDim], k[kTokenDim], v[kTokenDim];
  float read[kTokenDim], sums[2];
};

// The sum over the threads of two warps, one element each. sums: [2] in shared memory.
__device__ __forceinline__ float sum_of_head(float x, float* sums) {
  const float of_warp = warp_sum(x);
  __syncthreads();  // the last sums have been read
  if (threadIdx.x % 32 == 0 && threadIdx.x < kTokenDim) sums[threadIdx.x / 32] = of_warp;
  __syncthreads();
  return sums[0] + sums[1];
}

template <class Y>
__device__ __forceinline__ void find_inputs(HeadVectors& h, const Wkv7Token<Y>& p, int64_t t, int i, int row,
                                            bool is_row) {
  const float k = is_row ? p.k[t * p.k_stride + i] : 0.0f, kk = is_row ? k * p.k_k[i] : 0.0f;
  const float inverse = 1.0f / fmaxf(sqrtf(sum_of_head(kk * kk, h.sums)), 1e-12f);
  if (is_row) {
    const float rate = sigmoid(p.rate[t * p.rate_stride + i]), v = p.v[t * p.v_stride + i];
    float& v_first = p.v_first[t * p.v_first_stride + i];
    h.q[row] = p.q[t * p.q_stride + i];
    h.keep[row] = expf(-0.60653066f * sigmoid(p.keep[t * p.keep_stride + i]));
    h.k[row] = k * fmaf(rate - 1.0f, p.k_a[i], 1.0f);
    h.a[row] = -kk * inverse;
    h.b[row] = kk * inverse * rate;
    h.v[row] = p.v_gate == nullptr ? v : fmaf(sigmoid(p.v_gate[t * p.v_gate_stride + i]), v_first - v, v);
    if (p.v_gate == nullptr) v_first = v;
  }
  __syncthreads();
}

template <class Y>
__global__ void __launch_bounds__(kTokenThreads) wkv7_token_kernel(const __grid_constant__ Wkv7Token<Y> p) {
  __shared__ HeadVectors h;
  let_next_start();
  const int head = blockIdx.x, seq = blockIdx.y, row = static_cast<int>(threadIdx.x), i = head * kTokenDim + row,
            lane = row % kColumnLanes, column = row / kColumnLanes;
  const int in = p.batch.state_in[seq];
  const int64_t t = p.batch.q_start[seq], place = (int64_t{head} * kTokenDim + column) * kTokenDim;
  const float* before = p.states.data + in * p.states.slot_floats + place;
  float s[kTokenPasses][kTokenPer];
#pragma unroll
  for (int j = 0; j < kTokenPasses; ++j)
    load_column<true>(s[j], before + j * kTokenColumns * kTokenDim, lane, in >= 0 ? kTokenDim : 0);
  wait_for_previous();
  const bool is_row = row < kTokenDim;
  find_inputs(h, p, t, i, row, is_row);
  float q[kTokenPer], keep[kTokenPer], a[kTokenPer], b[kTokenPer], k[kTokenPer], sums[kTokenPasses];
  load_rows(q, h.q, lane), load_rows(keep, h.keep, lane), load_rows(a, h.a, lane), load_rows(b, h.b, lane);
  load_rows(k, h.k, lane);
#pragma unroll
  for (int j = 0; j < kTokenPasses; ++j) sums[j] = dot_rows(a, s[j]);
  sum_lanes(sums);
  float* after = p.states.data + p.batch.state_out[seq] * p.states.slot_floats + place;
#pragma unroll
  for (int j = 0; j < kTokenPasses; ++j) {
    const float v = h.v[column + j * kTokenColumns];
#pragma unroll
    for (int r = 0; r < kTokenPer; ++r) s[j][r] = fmaf(b[r], sums[j], fmaf(keep[r], s[j][r], k[r] * v));
    store_column<true>(after + j * kTokenColumns * kTokenDim, s[j], lane, kTokenDim);
    sums[j] = dot_rows(q, s[j]);
  }
  sum_lanes(sums);
#pragma unroll
  for (int j = 0; j < kTokenPasses; ++j)
    if (lane == j) h.read[column + j * kTokenColumns] = sums[j];
  __syncthreads();
  const float y = is_row ? h.read[row] : 0.0f,
              bonus = sum_of_head(is_row ? h.q[row] * h.k[row] * p.r_k[i] : 0.0f, h.sums),
              centred = y - sum_of_head(y, h.sums) / kTokenDim,
              variance = sum_of_head(is_row ? centred * centred : 0.0f, h.sums) / kTokenDim;
  if (!is_row) return;
  const float normed = fmaf(centred * (1.0f / sqrtf(variance + p.eps)), p.weight[i], p.bias[i]);
  p.y[t * p.y_stride + i] = from_float<Y>(p.gate[t * p.gate_stride + i] * fmaf(bonus, h.v[row], normed));
}

}  // namespace

bool can_step_wkv7(const Wkv7Args& a, const DeviceStates& states) {
  const StateBuffer& s = a.rule.states->buffer(a.rule.buffer);
  return s.rows == kTokenDim && s.cols == kTokenDim && packs_columns(states, kTokenDim);
}

void step_wkv7(const Wkv7Args& args, const DeviceStates& states, const DeviceBatch& batch, int n_seqs, Device& device) {
  if (n_seqs == 0) return;
  const Wkv7InputsArgs& in = args.inputs;
  const Wkv7OutputsArgs& end = args.outputs;
  with_type(args.out.dtype, [&](auto* py) {
    using Y = std::remove_pointer_t<decltype(py)>;
    const Wkv7Token<Y> p{.y = static_cast<Y*>(args.out.data),
                         .v_first = in.v_first.f32(),
                         .q = args.rule.q.f32(),
                         .keep = in.keep.f32(),
                         .rate = in.b.f32(),
                         .k = in.k.f32(),
                         .v = in.v.f32(),
                         .v_gate = in.v_gate ? in.v_gate.f32() : nullptr,
                         .k_k = in.k_k.f32(),
                         .k_a = in.k_a.f32(),
                         .r_k = end.r_k.f32(),
                         .gate = end.gate.f32(),
                         .weight = end.norm.weight.f32(),
                         .bias = end.norm.bias.f32(),
                         .y_stride = args.out.stride,
                         .v_first_stride = in.v_first.stride,
                         .q_stride = args.rule.q.stride,
                         .keep_stride = in.keep.stride,
                         .rate_stride = in.b.stride,
                         .k_stride = in.k.stride,
                         .v_stride = in.v.stride,
                         .v_gate_stride = in.v_gate.stride,
                         .gate_stride = end.gate.stride,
                         .eps = end.norm.eps,
                         .states = states,
                         .batch = batch};
    launch(device, wkv7_token_kernel<Y>, dim3(static_cast<unsigned>(in.n_heads), static_cast<unsigned>(n_seqs)),
           kTokenThreads, 0, p);
  });
}

}  // namespace ingot::cuda
