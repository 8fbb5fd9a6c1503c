// RWKV-7 besides its rule (rank_one.cu): the mix of a token with the one before it, and what precedes and follows the
// rule in a head.
#include "backend/cuda/recurrence/recurrence.cuh"
#include "backend/cuda/recurrence/wide.cuh"

namespace ingot::cuda {

using namespace recurrence;

namespace {

constexpr int kMixThreads = 128, kMixTokens = 4;
constexpr int kHeadLanes = 32, kBlockHeads = 4;

template <class X, class Y>
struct Mix {
  Y* y;
  const X* x;
  const float* mix;
  int64_t y_stride, x_stride;
  int n_tokens, n_mixes, dim;
  DeviceStates states;
  DeviceBatch batch;
};

// A thread handles kWide channels of kMixTokens tokens, with each mix in registers. The threads of a sequence's first
// token read the state, and then write the sequence's last token to it, because both states may be the same slot.
template <class X, class Y, int kWide>
__global__ void __launch_bounds__(kMixThreads) mix_kernel(const __grid_constant__ Mix<X, Y> p) {
  start_dependent();
  const int c = (static_cast<int>(blockIdx.y) * kMixThreads + threadIdx.x) * kWide;
  if (c >= p.dim) return;
  const int first = static_cast<int>(blockIdx.x) * kMixTokens, n = min(kMixTokens, p.n_tokens - first);
  float x[kMixTokens][kWide], before[kMixTokens][kWide] = {};
#pragma unroll
  for (int i = 0; i < kMixTokens; ++i) {
    if (i >= n) break;
    const int t = first + i, seq = p.batch.token_seq[t], begin = p.batch.q_start[seq];
    load_wide(x[i], p.x + t * p.x_stride + c);
    if (t > begin) {
      load_wide(before[i], p.x + (int64_t{t} - 1) * p.x_stride + c);
      continue;
    }
    const int in = p.batch.state_in[seq];
    if (in >= 0) load_wide(before[i], p.states.data + in * p.states.slot_floats + c);
    float last[kWide];
    load_wide(last, p.x + (int64_t{p.batch.q_start[seq + 1]} - 1) * p.x_stride + c);
    store_wide(p.states.data + p.batch.state_out[seq] * p.states.slot_floats + c, last);
  }
  Y* y = p.y + first * p.y_stride + c;
  for (int m = 0; m < p.n_mixes; ++m, y += p.dim) {
    float mix[kWide];
    load_wide(mix, p.mix + m * p.dim + c);
#pragma unroll
    for (int i = 0; i < kMixTokens; ++i) {
      if (i >= n) break;
      float mixed[kWide];
#pragma unroll
      for (int k = 0; k < kWide; ++k) mixed[k] = fmaf(mix[k], before[i][k] - x[i][k], x[i][k]);
      store_wide(y + i * p.y_stride, mixed);
    }
  }
}

struct Wkv7Inputs {
  float *k, *keep, *b, *a, *v, *v_first;
  const float *v_gate, *k_k, *k_a;
  int64_t k_stride, keep_stride, b_stride, a_stride, v_stride, v_first_stride, v_gate_stride;
  int n_heads, head_dim;
};

// A warp handles a head of a token, a lane kRows of its rows. All is loaded before anything is stored, because a load
// waits for the stores before it.
template <int kRows>
__global__ void __launch_bounds__(kBlockHeads* kHeadLanes) wkv7_inputs_kernel(const __grid_constant__ Wkv7Inputs p) {
  start_dependent();
  const int64_t t = blockIdx.x;
  const int lane = threadIdx.x % kHeadLanes,
            head = static_cast<int>(blockIdx.y) * kBlockHeads + threadIdx.x / kHeadLanes, first = head * p.head_dim;
  if (head >= p.n_heads) return;  // a whole warp
  float k[kRows] = {}, keys[kRows] = {}, keep[kRows], rate[kRows], v[kRows], v_first[kRows], v_gate[kRows], squares = 0;
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    const int row = j * kHeadLanes + lane, i = first + row;
    if (row >= p.head_dim) break;
    k[j] = p.k[t * p.k_stride + i];
    keys[j] = p.k_k[i];
    keep[j] = p.keep[t * p.keep_stride + i];
    rate[j] = p.b[t * p.b_stride + i];
    v[j] = p.v[t * p.v_stride + i];
    if (p.v_gate == nullptr) continue;
    v_first[j] = p.v_first[t * p.v_first_stride + i];
    v_gate[j] = p.v_gate[t * p.v_gate_stride + i];
  }
#pragma unroll
  for (int j = 0; j < kRows; ++j) keys[j] *= k[j], squares = fmaf(keys[j], keys[j], squares);
  const float inverse = 1.0f / fmaxf(sqrtf(warp_sum(squares)), 1e-12f);
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    const int row = j * kHeadLanes + lane, i = first + row;
    if (row >= p.head_dim) break;
    const float key = keys[j] * inverse, of_key = sigmoid(rate[j]);
    p.keep[t * p.keep_stride + i] = expf(-0.60653066f * sigmoid(keep[j]));
    p.k[t * p.k_stride + i] = k[j] * fmaf(of_key - 1.0f, p.k_a[i], 1.0f);
    p.a[t * p.a_stride + i] = -key;
    p.b[t * p.b_stride + i] = key * of_key;
    if (p.v_gate != nullptr)
      p.v[t * p.v_stride + i] = fmaf(sigmoid(v_gate[j]), v_first[j] - v[j], v[j]);
    else
      p.v_first[t * p.v_first_stride + i] = v[j];
  }
}

template <class Out>
struct Wkv7Outputs {
  Out* out;
  const float *y, *r, *k, *v, *gate, *r_k, *weight, *bias;
  int64_t out_stride, y_stride, r_stride, k_stride, v_stride, gate_stride;
  int n_heads, head_dim;
  float eps;
};

// A warp handles a head of a token, a lane kRows of its rows. out may be y.
template <class Out, int kRows>
__global__ void __launch_bounds__(kBlockHeads* kHeadLanes)
    wkv7_outputs_kernel(const __grid_constant__ Wkv7Outputs<Out> p) {
  start_dependent();
  const int64_t t = blockIdx.x;
  const int lane = threadIdx.x % kHeadLanes,
            head = static_cast<int>(blockIdx.y) * kBlockHeads + threadIdx.x / kHeadLanes, first = head * p.head_dim;
  if (head >= p.n_heads) return;  // a whole warp
  float y[kRows] = {}, v[kRows], gate[kRows], total = 0, bonus = 0, squares = 0;
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    const int row = j * kHeadLanes + lane, i = first + row;
    if (row >= p.head_dim) break;
    y[j] = p.y[t * p.y_stride + i];
    v[j] = p.v[t * p.v_stride + i];
    gate[j] = p.gate[t * p.gate_stride + i];
    total += y[j];
    bonus = fmaf(p.r[t * p.r_stride + i] * p.k[t * p.k_stride + i], p.r_k[i], bonus);
  }
  const float mean = warp_sum(total) / static_cast<float>(p.head_dim);
  bonus = warp_sum(bonus);
#pragma unroll
  for (int j = 0; j < kRows; ++j)
    if (j * kHeadLanes + lane < p.head_dim) squares = fmaf(y[j] - mean, y[j] - mean, squares);
  const float inverse = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(p.head_dim) + p.eps);
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    const int row = j * kHeadLanes + lane, i = first + row;
    if (row >= p.head_dim) break;
    const float normed = fmaf((y[j] - mean) * inverse, p.weight[i], p.bias[i]);
    p.out[t * p.out_stride + i] = from_float<Out>(gate[j] * fmaf(bonus, v[j], normed));
  }
}

// Calls f with the rows of a lane as its template argument.
template <class F>
void with_rows(int head_dim, F&& f) {
  constexpr int kFew = 2;
  head_dim <= kFew* kHeadLanes ? f.template operator()<kFew>() : f.template operator()<kMaxKeyDim / kHeadLanes>();
}

// True if two channels can be read at once.
bool is_paired(const MixTokensArgs& a, const DeviceStates& states) {
  const auto pairs = [](const Tensor& t) { return t.stride % 2 == 0 && reinterpret_cast<uintptr_t>(t.data) % 8 == 0; };
  return a.x.cols % 2 == 0 && pairs(a.x) && pairs(a.y) && pairs(a.mix) && states.slot_floats % 2 == 0 &&
         reinterpret_cast<uintptr_t>(states.data) % 8 == 0;
}

dim3 heads_grid(const Tensor& rows, int n_heads) {
  return dim3(static_cast<unsigned>(rows.rows), blocks_for(n_heads, kBlockHeads));
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
                        .n_tokens = n_tokens,
                        .n_mixes = static_cast<int>(a.mix.rows),
                        .dim = static_cast<int>(a.x.cols),
                        .states = states,
                        .batch = batch};
      const auto start = [&](auto kernel, int channels) {
        launch(device, kernel, dim3(blocks_for(n_tokens, kMixTokens), blocks_for(p.dim, kMixThreads * channels)),
               kMixThreads, 0, p);
      };
      is_paired(a, states) ? start(mix_kernel<X, Y, 2>, 2) : start(mix_kernel<X, Y, 1>, 1);
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
                     .n_heads = a.n_heads,
                     .head_dim = static_cast<int>(a.k.cols / a.n_heads)};
  with_rows(p.head_dim, [&]<int kRows>() {
    launch(device, wkv7_inputs_kernel<kRows>, heads_grid(a.k, a.n_heads), kBlockHeads * kHeadLanes, 0, p);
  });
}

void wkv7_outputs(const Wkv7OutputsArgs& a, const Tensor& out, Device& device) {
  if (a.y.rows == 0) return;
  with_type(out.dtype, [&](auto* of) {
    using Out = std::remove_pointer_t<decltype(of)>;
    const Wkv7Outputs<Out> p{.out = static_cast<Out*>(out.data),
                             .y = a.y.f32(),
                             .r = a.r.f32(),
                             .k = a.k.f32(),
                             .v = a.v.f32(),
                             .gate = a.gate.f32(),
                             .r_k = a.r_k.f32(),
                             .weight = a.norm.weight.f32(),
                             .bias = a.norm.bias.f32(),
                             .out_stride = out.stride,
                             .y_stride = a.y.stride,
                             .r_stride = a.r.stride,
                             .k_stride = a.k.stride,
                             .v_stride = a.v.stride,
                             .gate_stride = a.gate.stride,
                             .n_heads = a.n_heads,
                             .head_dim = static_cast<int>(a.y.cols / a.n_heads),
                             .eps = a.norm.eps};
    with_rows(p.head_dim, [&]<int kRows>() {
      launch(device, wkv7_outputs_kernel<Out, kRows>, heads_grid(a.y, a.n_heads), kBlockHeads * kHeadLanes, 0, p);
    });
  });
}

}  // namespace ingot::cuda
