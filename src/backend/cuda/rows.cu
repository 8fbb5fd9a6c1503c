// Ops that work row by row: norms, sums, activations, copies.
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/rms.cuh"

namespace ingot::cuda {
namespace {

constexpr int kThreads = 256;

struct NormParams {
  const float* weight;
  const float* bias;
  float eps;
  bool layer;
};

NormParams params_of(const NormArgs& a) {
  return {a.weight ? a.weight.f32() : nullptr, a.bias ? a.bias.f32() : nullptr, a.eps, a.kind == NormKind::kLayer};
}

// Floats that a thread of a norm keeps in registers, to read them only once. The thread reads the rest of its row
// again.
constexpr int kKept = 16;

// One block for each row.
template <class X, class Y>
__global__ void norm_kernel(Y* y, int64_t y_stride, const X* x, int64_t x_stride, int64_t dim, NormParams p) {
  __shared__ float shared[33];
  start_dependent();
  const X* row = x + blockIdx.x * x_stride;
  Y* out = y + blockIdx.x * y_stride;
  float kept[kKept];
  float sum = 0, squares = 0;
  const auto read = [&](int64_t i) {
    const float v = to_float(row[i]);
    sum += v;
    squares += v * v;
    return v;
  };
#pragma unroll
  for (int j = 0; j < kKept; ++j) {
    const int64_t i = threadIdx.x + int64_t{j} * blockDim.x;
    kept[j] = i < dim ? read(i) : 0.0f;
  }
  for (int64_t i = threadIdx.x + int64_t{kKept} * blockDim.x; i < dim; i += blockDim.x) read(i);
  float mean = 0;
  if (p.layer) {  // a second pass computes the variance about the mean, to limit rounding errors
    mean = block_sum(sum, shared) / static_cast<float>(dim);
    squares = 0;
#pragma unroll
    for (int j = 0; j < kKept; ++j)
      if (threadIdx.x + int64_t{j} * blockDim.x < dim) squares += (kept[j] - mean) * (kept[j] - mean);
    for (int64_t i = threadIdx.x + int64_t{kKept} * blockDim.x; i < dim; i += blockDim.x) {
      const float v = to_float(row[i]) - mean;
      squares += v * v;
    }
  }
  const float inverse = 1.0f / sqrtf(block_sum(squares, shared) / static_cast<float>(dim) + p.eps);
  const auto write = [&](int64_t i, float v) {
    const float normed = (v - mean) * inverse * (p.weight ? p.weight[i] : 1.0f);
    out[i] = from_float<Y>(p.bias ? normed + p.bias[i] : normed);
  };
#pragma unroll
  for (int j = 0; j < kKept; ++j) {
    const int64_t i = threadIdx.x + int64_t{j} * blockDim.x;
    if (i < dim) write(i, kept[j]);
  }
  for (int64_t i = threadIdx.x + int64_t{kKept} * blockDim.x; i < dim; i += blockDim.x) write(i, to_float(row[i]));
}

// RMS norms. Most models have rows that rms_row() takes, and in steps with few rows the other
// kernels wait for this one.
template <class Y, int kPacks>
__global__ void __launch_bounds__(kPackThreads) rms_kernel(Y* y, int64_t y_stride, const float* x, int64_t x_stride,
                                                           int n_packs, const float* weight, float eps, bool rounds) {
  float4 normed[kPacks];
  rms_row(normed, x + blockIdx.x * x_stride, n_packs, weight, eps);
  if (rounds) {
#pragma unroll
    for (float4& v : normed) {
      const float2 low = eight_bits(make_float2(v.x, v.y)), high = eight_bits(make_float2(v.z, v.w));
      v = make_float4(low.x, low.y, high.x, high.y);
    }
  }
#pragma unroll
  for (int j = 0; j < kPacks; ++j)
    if (const int i = threadIdx.x + j * blockDim.x; i < n_packs) store4(y + blockIdx.x * y_stride + 4 * i, normed[j]);
}

template <class Y>
void rms(const Tensor& y, const Tensor& x, const NormArgs& a, Device& device, bool rounds) {
  const int n_packs = static_cast<int>(x.cols / 4);
  with_packs(n_packs, [&](auto packs, int threads) {
    launch(device, rms_kernel<Y, decltype(packs)::value>, dim3(static_cast<unsigned>(x.rows)), threads, 0,
           static_cast<Y*>(y.data), y.stride, x.f32(), x.stride, n_packs, a.weight.f32(), a.eps, rounds);
  });
}

// x = factor * (x + norm(y)), one block for each row.
template <int kPacks>
__global__ void __launch_bounds__(kPackThreads) add_normed_kernel(float* x, int64_t x_stride, const float* y,
                                                                  int64_t y_stride, int n_packs, const float* weight,
                                                                  float eps, float factor) {
  float4 normed[kPacks], sum[kPacks];
  rms_row(normed, y + blockIdx.x * y_stride, n_packs, weight, eps);
  load_packs(sum, x + blockIdx.x * x_stride, n_packs);
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int i = threadIdx.x + j * blockDim.x;
    const float4 a = sum[j], b = normed[j];
    if (i < n_packs)
      store4(x + blockIdx.x * x_stride + 4 * i,
             make_float4(factor * (a.x + b.x), factor * (a.y + b.y), factor * (a.z + b.z), factor * (a.w + b.w)));
  }
}

int norm_threads(int64_t dim) { return dim <= 256 ? 32 : dim <= 2048 ? 256 : 512; }

// Rows of elements; with stride 0, all rows are the same row.
template <class T>
struct Rows {
  T* data;
  int64_t stride;
  __device__ T& at(int64_t r, int64_t c) const { return data[r * stride + c]; }
};

template <class T>
Rows<T> rows_of(const Tensor& t) {
  return {static_cast<T*>(t.data), t.stride};
}

template <class Y, class X>
struct Convert {
  Rows<Y> y;
  Rows<X> x;
  __device__ void operator()(int64_t r, int64_t c) const { y.at(r, c) = from_float<Y>(to_float(x.at(r, c))); }
};

template <class X, class Y>
struct Add {
  Rows<X> x;
  Rows<Y> y;
  __device__ void operator()(int64_t r, int64_t c) const {
    x.at(r, c) = from_float<X>(to_float(x.at(r, c)) + to_float(y.at(r, c)));
  }
};

template <class Y, class G, class U>
struct ActMul {
  Rows<Y> y;
  Rows<G> gate;
  Rows<U> up;
  int act;
  __device__ void operator()(int64_t r, int64_t c) const {
    y.at(r, c) = from_float<Y>(act_mul(to_float(gate.at(r, c)), to_float(up.at(r, c)), act));
  }
};

// Each thread processes 8 halves of a row, because the activations of a prompt are large. Sizes and strides count 8
// halves.
__global__ void act_mul_kernel(uint4* y, int64_t y_stride, const uint4* gate, int64_t gate_stride, const uint4* up,
                               int64_t up_stride, int n, int act, bool rounds) {
  start_dependent();
  const int i = static_cast<int>(blockIdx.y * kThreads + threadIdx.x);
  const int64_t row = blockIdx.x;
  if (i >= n) return;
  const uint4 g = gate[row * gate_stride + i], u = up[row * up_stride + i];
  const uint32_t gates[4] = {g.x, g.y, g.z, g.w}, ups[4] = {u.x, u.y, u.z, u.w};
  uint32_t out[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float2 a = __half22float2(half2_of(gates[j])), b = __half22float2(half2_of(ups[j]));
    float2 v = make_float2(act_mul(a.x, b.x, act), act_mul(a.y, b.y, act));
    if (rounds) v = eight_bits(v);
    out[j] = bits_of(__halves2half2(from_float<half>(v.x), from_float<half>(v.y)));
  }
  y[row * y_stride + i] = make_uint4(out[0], out[1], out[2], out[3]);
}

template <class T>
struct Scale {
  Rows<T> x;
  float factor, softcap;
  __device__ void operator()(int64_t r, int64_t c) const {
    const float v = to_float(x.at(r, c)) * factor;
    x.at(r, c) = from_float<T>(softcap > 0 ? softcap * tanhf(v / softcap) : v);
  }
};

template <class T>
struct Clamp {
  Rows<T> x;
  float low, high;
  __device__ void operator()(int64_t r, int64_t c) const {
    x.at(r, c) = from_float<T>(fminf(fmaxf(to_float(x.at(r, c)), low), high));
  }
};

template <class T>
struct Gather {
  Rows<T> y, x;
  const int32_t* rows;
  __device__ void operator()(int64_t r, int64_t c) const { y.at(r, c) = x.at(rows[r], c); }
};

template <class T>
struct Act {
  Rows<T> x;
  int act;
  const float* bias;  // [cols] or null
  __device__ void operator()(int64_t r, int64_t c) const {
    x.at(r, c) = from_float<T>(activate(to_float(x.at(r, c)) + (bias ? bias[c] : 0.0f), act));
  }
};

// As act_mul_kernel: 8 halves for each thread.
__global__ void act_kernel(uint4* x, int64_t stride, const float4* bias, int n, int act) {
  start_dependent();
  const int i = static_cast<int>(blockIdx.y * kThreads + threadIdx.x);
  if (i >= n) return;
  uint4& pack = x[blockIdx.x * stride + i];
  const uint4 v = pack;
  uint32_t halves[4] = {v.x, v.y, v.z, v.w};
  const float4 low = bias ? bias[2 * i] : float4{}, high = bias ? bias[2 * i + 1] : float4{};
  const float2 added[4] = {{low.x, low.y}, {low.z, low.w}, {high.x, high.y}, {high.z, high.w}};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float2 a = __half22float2(half2_of(halves[j]));
    halves[j] = bits_of(__halves2half2(from_float<half>(activate(a.x + added[j].x, act)),
                                       from_float<half>(activate(a.y + added[j].y, act))));
  }
  pack = make_uint4(halves[0], halves[1], halves[2], halves[3]);
}

template <class T>
struct ScaleByPosition {
  Rows<T> x;
  PositionScale args;
  const int32_t* positions;
  __device__ void operator()(int64_t r, int64_t c) const {
    const float n = floorf(static_cast<float>(positions[r] + args.offset) / static_cast<float>(args.period));
    x.at(r, c) = from_float<T>(to_float(x.at(r, c)) * (1.0f + args.beta * logf(1.0f + n)));
  }
};

template <class T, class F>
struct ScaleGroups {
  Rows<T> x;
  Rows<F> factors;
  int64_t size;
  GroupFactor kind;
  __device__ void operator()(int64_t r, int64_t c) const {
    const float f = to_float(factors.at(r, c / size));
    const float factor = kind == GroupFactor::kSoftplus  ? fmaxf(f, 0.0f) + log1pf(expf(-fabsf(f)))
                         : kind == GroupFactor::kSigmoid ? 1.0f / (1.0f + expf(-f))
                                                         : f;
    x.at(r, c) = from_float<T>(to_float(x.at(r, c)) * factor);
  }
};

template <class T>
struct XieluOf {
  Rows<T> x;
  Xielu a;
  __device__ void operator()(int64_t r, int64_t c) const {
    const float v = to_float(x.at(r, c));
    x.at(r, c) = from_float<T>((v > 0 ? a.plus * v * v : a.minus * (expm1f(fminf(v, a.eps)) - v)) + a.beta * v);
  }
};

struct AddPositions {
  Rows<float> x, table;
  const int32_t* positions;  // null: row 0
  __device__ void operator()(int64_t r, int64_t c) const { x.at(r, c) += table.at(positions ? positions[r] : 0, c); }
};

struct Pool {
  Rows<float> y, x;
  const int32_t* q_start;
  Pooling pooling;
  __device__ void operator()(int64_t r, int64_t c) const {
    const int first = pooling == Pooling::kLast ? q_start[r + 1] - 1 : q_start[r];
    const int last = pooling == Pooling::kMean ? q_start[r + 1] : first + 1;
    float sum = 0;
    for (int t = first; t < last; ++t) sum += x.at(t, c);
    y.at(r, c) = sum / static_cast<float>(last - first);
  }
};

template <class Y, class X>
struct MeanRows {
  Rows<Y> y;
  Rows<X> x;
  int64_t n_each;
  __device__ void operator()(int64_t r, int64_t c) const {
    float sum = 0;
    for (int64_t i = 0; i < n_each; ++i) sum += to_float(x.at(r * n_each + i, c));
    y.at(r, c) = from_float<Y>(sum / static_cast<float>(n_each));
  }
};

template <class Y>
struct CutPatches {
  Rows<Y> y;
  const uint8_t* rgb;
  const float* values;
  const int32_t* places;
  int width, patch;
  __device__ void operator()(int64_t t, int64_t at) const {
    const int columns = width / patch, top = places[t] / columns * patch, left = places[t] % columns * patch,
              i = static_cast<int>(at), channel = i / (patch * patch), row = i / patch % patch, column = i % patch;
    const uint8_t byte = rgb[3 * (int64_t{top + row} * width + left + column) + channel];
    y.at(t, at) = from_float<Y>(values[256 * channel + byte]);
  }
};

struct AddMixedRows {
  Rows<float> x, table, factors;
  Rows<int32_t> rows;
  int n_each;
  __device__ void operator()(int64_t t, int64_t c) const {
    float sum = x.at(t, c);
    for (int j = 0; j < n_each; ++j) sum += factors.at(t, j) * table.at(rows.at(t, j), c);
    x.at(t, c) = sum;
  }
};

template <class F>
__global__ void each_kernel(int64_t n, int64_t cols, F f) {
  start_dependent();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) f(i / cols, i % cols);
}

// A block has a part of a row, because a division for each element takes longer than its memory.
constexpr int kColumnsEach = 4, kColumnsOfBlock = kColumnsEach * kThreads;
template <class F>
__global__ void each_wide_kernel(int64_t cols, F f) {
  start_dependent();
  const int64_t first = int64_t{blockIdx.y} * kColumnsOfBlock + threadIdx.x;
#pragma unroll
  for (int j = 0; j < kColumnsEach; ++j)
    if (const int64_t c = first + j * kThreads; c < cols) f(int64_t{blockIdx.x}, c);
}

// Calls f(row, column) for all elements.
template <class F>
void each(const Tensor& t, Device& device, F f) {
  const int64_t n = t.rows * t.cols;
  if (n == 0) return;
  if (t.cols < kThreads || t.rows < 16)
    return launch(device, each_kernel<F>, dim3(blocks_for(n, kThreads)), kThreads, 0, n, t.cols, f);
  const dim3 grid(static_cast<unsigned>(t.rows), blocks_for(t.cols, kColumnsOfBlock));
  launch(device, each_wide_kernel<F>, grid, kThreads, 0, t.cols, f);
}

}  // namespace

static bool packs_of_halves(const Tensor& x) {
  return x.dtype == DType::kF16 && x.cols % 8 == 0 && x.stride % 8 == 0 && on_16_bytes(x.data);
}

void convert(const Tensor& y, const Tensor& x, Device& device) {
  with_type(y.dtype, [&](auto* py) {
    with_type(x.dtype, [&](auto* px) {
      using Y = std::remove_pointer_t<decltype(py)>;
      using X = std::remove_pointer_t<decltype(px)>;
      each(y, device, Convert<Y, X>{rows_of<Y>(y), rows_of<X>(x)});
    });
  });
}

bool can_defer(const DeferredNorm& norm) {
  return norm.x.rows == 1 && norm.y.dtype == DType::kF16 && can_rms(norm.y, norm.x, norm.args);
}

void norm_rows(const Tensor& y, const Tensor& x, const NormArgs& args, Device& device, bool rounds) {
  if (x.rows == 0) return;
  with_type(y.dtype, [&](auto* py) {
    with_type(x.dtype, [&](auto* px) {
      using Y = std::remove_pointer_t<decltype(py)>;
      using X = std::remove_pointer_t<decltype(px)>;
      if (can_rms(y, x, args)) return rms<Y>(y, x, args, device, rounds);
      if (can_layer_norm(y, x, args)) return layer_norm_rows(y, x, args, device);
      launch(device, norm_kernel<X, Y>, dim3(static_cast<unsigned>(x.rows)), norm_threads(x.cols), 0,
             static_cast<Y*>(y.data), y.stride, static_cast<const X*>(x.data), x.stride, x.cols, params_of(args));
    });
  });
}

bool can_add_normed(const Tensor& x, const Tensor& y, const NormArgs& args) {
  return x.dtype == DType::kF32 && can_rms(x, y, args);
}

void add_normed_rows(const Tensor& x, const Tensor& y, const NormArgs& args, float factor, Device& device) {
  if (x.rows == 0) return;
  const int n_packs = static_cast<int>(x.cols / 4);
  with_packs(n_packs, [&](auto packs, int threads) {
    launch(device, add_normed_kernel<decltype(packs)::value>, dim3(static_cast<unsigned>(x.rows)), threads, 0, x.f32(),
           x.stride, y.f32(), y.stride, n_packs, args.weight.f32(), args.eps, factor);
  });
}

void add_rows(const Tensor& x, const Tensor& y, bool y_is_one_row, Device& device) {
  with_type(x.dtype, [&](auto* px) {
    with_type(y.dtype, [&](auto* py) {
      using X = std::remove_pointer_t<decltype(px)>;
      using Y = std::remove_pointer_t<decltype(py)>;
      Rows<Y> from = rows_of<Y>(y);
      if (y_is_one_row) from.stride = 0;
      each(x, device, Add<X, Y>{rows_of<X>(x), from});
    });
  });
}

void act_mul_rows(const Tensor& y, const Tensor& gate, const Tensor& up, Activation act, Device& device, bool rounds) {
  if (packs_of_halves(y) && packs_of_halves(gate) && packs_of_halves(up) && y.rows > 0) {
    const dim3 grid(static_cast<unsigned>(y.rows), blocks_for(y.cols / 8, kThreads));
    return launch(device, act_mul_kernel, grid, kThreads, 0, static_cast<uint4*>(y.data), y.stride / 8,
                  static_cast<const uint4*>(gate.data), gate.stride / 8, static_cast<const uint4*>(up.data),
                  up.stride / 8, static_cast<int>(y.cols / 8), static_cast<int>(act), rounds);
  }
  with_type(y.dtype, [&](auto* py) {
    with_type(gate.dtype, [&](auto* pg) {
      with_type(up.dtype, [&](auto* pu) {
        using Y = std::remove_pointer_t<decltype(py)>;
        using G = std::remove_pointer_t<decltype(pg)>;
        using U = std::remove_pointer_t<decltype(pu)>;
        each(y, device, ActMul<Y, G, U>{rows_of<Y>(y), rows_of<G>(gate), rows_of<U>(up), static_cast<int>(act)});
      });
    });
  });
}

void scale_rows(const Tensor& x, float factor, float softcap, Device& device) {
  with_type(x.dtype, [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    each(x, device, Scale<T>{rows_of<T>(x), factor, softcap});
  });
}

void clamp_rows(const Tensor& x, float low, float high, Device& device) {
  with_type(x.dtype, [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    each(x, device, Clamp<T>{rows_of<T>(x), low, high});
  });
}

void scale_by_position_rows(const Tensor& x, const PositionScale& args, const int32_t* positions, Device& device) {
  with_type(x.dtype, [&](auto* px) {
    using T = std::remove_pointer_t<decltype(px)>;
    each(x, device, ScaleByPosition<T>{rows_of<T>(x), args, positions});
  });
}

void scale_group_rows(const Tensor& x, const Tensor& factors, GroupFactor kind, Device& device) {
  with_type(x.dtype, [&](auto* px) {
    with_type(factors.dtype, [&](auto* pf) {
      using T = std::remove_pointer_t<decltype(px)>;
      using F = std::remove_pointer_t<decltype(pf)>;
      Rows<F> from = rows_of<F>(factors);
      if (factors.rows == 1) from.stride = 0;
      each(x, device, ScaleGroups<T, F>{rows_of<T>(x), from, x.cols / factors.cols, kind});
    });
  });
}

void xielu_rows(const Tensor& x, const Xielu& args, Device& device) {
  with_type(x.dtype, [&](auto* px) {
    using T = std::remove_pointer_t<decltype(px)>;
    each(x, device, XieluOf<T>{rows_of<T>(x), args});
  });
}

void act_rows(const Tensor& x, Activation act, const Tensor& bias, Device& device) {
  const float* added = bias ? bias.f32() : nullptr;
  if (packs_of_halves(x) && on_16_bytes(added) && x.rows > 0) {
    const dim3 grid(static_cast<unsigned>(x.rows), blocks_for(x.cols / 8, kThreads));
    return launch(device, act_kernel, grid, kThreads, 0, static_cast<uint4*>(x.data), x.stride / 8,
                  reinterpret_cast<const float4*>(added), static_cast<int>(x.cols / 8), static_cast<int>(act));
  }
  with_type(x.dtype, [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    each(x, device, Act<T>{rows_of<T>(x), static_cast<int>(act), added});
  });
}

void add_positions(const Tensor& x, const Tensor& table, const int32_t* positions, Device& device) {
  each(x, device, AddPositions{rows_of<float>(x), rows_of<float>(table), table.rows == 1 ? nullptr : positions});
}

void pool(const Tensor& y, const Tensor& x, const int32_t* q_start, Pooling pooling, Device& device) {
  each(y, device, Pool{rows_of<float>(y), rows_of<float>(x), q_start, pooling});
}

void cut_patches(const Tensor& y, const PatchArgs& a, Device& device) {
  with_type(y.dtype, [&](auto* p) {
    using Y = std::remove_pointer_t<decltype(p)>;
    each(y, device,
         CutPatches<Y>{rows_of<Y>(y), reinterpret_cast<const uint8_t*>(a.rgb.i32()), a.values.f32(), a.places.i32(),
                       a.width, a.patch});
  });
}

void add_mixed_rows(const Tensor& x, const Tensor& table, const Tensor& rows, const Tensor& factors, Device& device) {
  each(x, device, AddMixedRows{rows_of<float>(x), rows_of<float>(table), rows_of<float>(factors),
                               rows_of<int32_t>(rows), static_cast<int>(rows.cols)});
}

void mean_rows(const Tensor& y, const Tensor& x, Device& device) {
  CHECK(y.rows == 0 || x.rows % y.rows == 0);
  with_type(y.dtype, [&](auto* py) {
    with_type(x.dtype, [&](auto* px) {
      using Y = std::remove_pointer_t<decltype(py)>;
      using X = std::remove_pointer_t<decltype(px)>;
      each(y, device, MeanRows<Y, X>{rows_of<Y>(y), rows_of<X>(x), x.rows / std::max<int64_t>(y.rows, 1)});
    });
  });
}

void gather(const Tensor& y, const Tensor& x, const int32_t* rows, Device& device) {
  CHECK(y.dtype == x.dtype);
  with_type(y.dtype, [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    each(y, device, Gather<T>{rows_of<T>(y), rows_of<T>(x), rows});
  });
}

}  // namespace ingot::cuda
