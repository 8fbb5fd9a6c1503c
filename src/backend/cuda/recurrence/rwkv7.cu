// RWKV-7 besides its rule (rank_one.cu): the mix of a token with the one before it, and what precedes and follows the
// rule in a head.
#include "backend/cuda/launch.cuh"
#include "backend/cuda/recurrence/recurrence.cuh"
#include "backend/cuda/recurrence/recurrence.h"

namespace ingot::cuda {

using namespace recurrence;

namespace {

constexpr int kMixThreads = 128, kHeadLanes = 32, kMostRows = kMaxKeyDim / kHeadLanes;

template <class X, class Y>
struct Mix {
  Y* y;
  const X* x;
  const float* mix;
  int64_t y_stride, x_stride;
  int n_mixes, dim;
  DeviceStates states;
  DeviceBatch batch;
};

// A thread handles a channel of a token. The threads of a sequence's first token read the state, and then write the
// sequence's last token to it, because both states may be the same slot.
template <class X, class Y>
__global__ void __launch_bounds__(kMixThreads) mix_kernel(const __grid_constant__ Mix<X, Y> p) {
  start_dependent();
  const int c = static_cast<int>(blockIdx.y) * kMixThreads + threadIdx.x;
  if (c >= p.dim) return;
  const int t = blockIdx.x, seq = p.batch.token_seq[t], begin = p.batch.q_start[seq];
  const float x = to_float(p.x[t * p.x_stride + c]);
  float before = 0;
  if (t > begin) {
    before = to_float(p.x[(int64_t{t} - 1) * p.x_stride + c]);
  } else {
    const int in = p.batch.state_in[seq];
    if (in >= 0) before = p.states.data[in * p.states.slot_floats + c];
    const int64_t last = p.batch.q_start[seq + 1] - 1;
    p.states.data[p.batch.state_out[seq] * p.states.slot_floats + c] = to_float(p.x[last * p.x_stride + c]);
  }
  Y* y = p.y + t * p.y_stride + c;
  for (int i = 0; i < p.n_mixes; ++i, y += p.dim) *y = from_float<Y>(fmaf(p.mix[i * p.dim + c], before - x, x));
}

struct Wkv7Inputs {
  float *k, *keep, *b, *a, *v, *v_first;
  const float *v_gate, *k_k, *k_a;
  int64_t k_stride, keep_stride, b_stride, a_stride, v_stride, v_first_stride, v_gate_stride;
  int head_dim;
};

// A warp handles a head of a token.
__global__ void __launch_bounds__(kHeadLanes) wkv7_inputs_kernel(const __grid_constant__ Wkv7Inputs p) {
  start_dependent();
  const int64_t t = blockIdx.x;
  const int first = static_cast<int>(blockIdx.y) * p.head_dim;
  float ks[kMostRows], squares = 0;
#pragma unroll
  for (int j = 0; j < kMostRows; ++j) {
    const int row = j * kHeadLanes + threadIdx.x, i = first + row;
    ks[j] = row < p.head_dim ? p.k[t * p.k_stride + i] : 0.0f;
    const float kk = row < p.head_dim ? ks[j] * p.k_k[i] : 0.0f;
    squares = fmaf(kk, kk, squares);
  }
  const float inverse = 1.0f / fmaxf(sqrtf(warp_sum(squares)), 1e-12f);
#pragma unroll
  for (int j = 0; j < kMostRows; ++j) {
    const int row = j * kHeadLanes + threadIdx.x, i = first + row;
    if (row >= p.head_dim) break;
    float &keep = p.keep[t * p.keep_stride + i], &b = p.b[t * p.b_stride + i], &v = p.v[t * p.v_stride + i],
          &v_first = p.v_first[t * p.v_first_stride + i];
    const float kk = ks[j] * p.k_k[i] * inverse, rate = sigmoid(b);
    keep = expf(-0.60653066f * sigmoid(keep));
    p.k[t * p.k_stride + i] = ks[j] * fmaf(rate - 1.0f, p.k_a[i], 1.0f);
    p.a[t * p.a_stride + i] = -kk;
    b = kk * rate;
    if (p.v_gate != nullptr)
      v = fmaf(sigmoid(p.v_gate[t * p.v_gate_stride + i]), v_first - v, v);
    else
      v_first = v;
  }
}

struct Wkv7Outputs {
  float* y;
  const float *r, *k, *v, *gate, *r_k, *weight, *bias;
  int64_t y_stride, r_stride, k_stride, v_stride, gate_stride;
  int head_dim;
  float eps;
};

// A warp handles a head of a token.
__global__ void __launch_bounds__(kHeadLanes) wkv7_outputs_kernel(const __grid_constant__ Wkv7Outputs p) {
  start_dependent();
  const int64_t t = blockIdx.x;
  const int first = static_cast<int>(blockIdx.y) * p.head_dim;
  float ys[kMostRows], total = 0, bonus = 0, squares = 0;
#pragma unroll
  for (int j = 0; j < kMostRows; ++j) {
    const int row = j * kHeadLanes + threadIdx.x, i = first + row;
    ys[j] = row < p.head_dim ? p.y[t * p.y_stride + i] : 0.0f;
    total += ys[j];
    if (row < p.head_dim) bonus = fmaf(p.r[t * p.r_stride + i] * p.k[t * p.k_stride + i], p.r_k[i], bonus);
  }
  const float mean = warp_sum(total) / static_cast<float>(p.head_dim);
  bonus = warp_sum(bonus);
#pragma unroll
  for (int j = 0; j < kMostRows; ++j)
    if (j * kHeadLanes + threadIdx.x < p.head_dim) squares = fmaf(ys[j] - mean, ys[j] - mean, squares);
  const float inverse = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(p.head_dim) + p.eps);
#pragma unroll
  for (int j = 0; j < kMostRows; ++j) {
    const int row = j * kHeadLanes + threadIdx.x, i = first + row;
    if (row >= p.head_dim) break;
    const float normed = fmaf((ys[j] - mean) * inverse, p.weight[i], p.bias[i]);
    p.y[t * p.y_stride + i] = p.gate[t * p.gate_stride + i] * fmaf(bonus, p.v[t * p.v_stride + i], normed);
  }
}

dim3 heads_grid(const Tensor& rows, int n_heads) {
  return dim3(static_cast<unsigned>(rows.rows), static_cast<unsigned>(n_heads));
}

}  // namespace

void mix_tokens(const MixTokensArgs& a, const DeviceStates& states, const DeviceBatch& batch, int n_tokens,
                Device& device) {
  if (n_tokens == 0) return;
  with_type(a.x.dtype, [&](auto* px) {
    with_type(a.y.dtype, [&](auto* py) {
      using X = std::remove_pointer_t<decltype(px)>;
      using Y = std::remove_pointer_t<decltype(py)>;
      const Mix<X, Y> p{.y = static_cast<Y*>(a.y.data),
                        .x = static_cast<const X*>(a.x.data),
                        .mix = a.mix.f32(),
                        .y_stride = a.y.stride,
                        .x_stride = a.x.stride,
                        .n_mixes = static_cast<int>(a.mix.rows),
                        .dim = static_cast<int>(a.x.cols),
                        .states = states,
                        .batch = batch};
      launch(device, mix_kernel<X, Y>, dim3(static_cast<unsigned>(n_tokens), blocks_for(p.dim, kMixThreads)),
             kMixThreads, 0, p);
    });
  });
}

void wkv7_inputs(const Wkv7InputsArgs& a, Device& device) {
  if (a.k.rows == 0) return;
  const Wkv7Inputs p{.k = a.k.f32(),
                     .keep = a.keep.f32(),
                     .b = a.b.f32(),
                     .a = a.a.f32(),
                     .v = a.v.f32(),
                     .v_first = a.v_first.f32(),
                     .v_gate = a.v_gate ? a.v_gate.f32() : nullptr,
                     .k_k = a.k_k.f32(),
                     .k_a = a.k_a.f32(),
                     .k_stride = a.k.stride,
                     .keep_stride = a.keep.stride,
                     .b_stride = a.b.stride,
                     .a_stride = a.a.stride,
                     .v_stride = a.v.stride,
                     .v_first_stride = a.v_first.stride,
                     .v_gate_stride = a.v_gate.stride,
                     .head_dim = static_cast<int>(a.k.cols / a.n_heads)};
  launch(device, wkv7_inputs_kernel, heads_grid(a.k, a.n_heads), kHeadLanes, 0, p);
}

void wkv7_outputs(const Wkv7OutputsArgs& a, Device& device) {
  if (a.y.rows == 0) return;
  const Wkv7Outputs p{.y = a.y.f32(),
                      .r = a.r.f32(),
                      .k = a.k.f32(),
                      .v = a.v.f32(),
                      .gate = a.gate.f32(),
                      .r_k = a.r_k.f32(),
                      .weight = a.norm.weight.f32(),
                      .bias = a.norm.bias.f32(),
                      .y_stride = a.y.stride,
                      .r_stride = a.r.stride,
                      .k_stride = a.k.stride,
                      .v_stride = a.v.stride,
                      .gate_stride = a.gate.stride,
                      .head_dim = static_cast<int>(a.y.cols / a.n_heads),
                      .eps = a.norm.eps};
  launch(device, wkv7_outputs_kernel, heads_grid(a.y, a.n_heads), kHeadLanes, 0, p);
}

}  // namespace ingot::cuda
