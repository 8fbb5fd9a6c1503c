// Verbs that work row by row: norms, sums, activations, copies.
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"

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
  return {a.weight.f32(), a.bias ? a.bias.f32() : nullptr, a.eps, a.kind == NormKind::kLayer};
}

// What threads of a norm keep of their row, so that it is read once: 16 floats each, the rest is read again.
constexpr int kKept = 16;

// One block a row. With kAdd, x += add first.
template <class X, class Y, class A, bool kAdd>
__global__ void norm_kernel(Y* y, int64_t y_stride, X* x, int64_t x_stride, const A* add, int64_t add_stride, int64_t dim, NormParams p) {
  __shared__ float shared[33];
  X* row = x + blockIdx.x * x_stride;
  Y* out = y + blockIdx.x * y_stride;
  float kept[kKept];
  float sum = 0, squares = 0;
  const auto read = [&](int64_t i) {
    float v = to_float(row[i]);
    if constexpr (kAdd) {
      v += to_float(add[blockIdx.x * add_stride + i]);
      row[i] = from_float<X>(v);
    }
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
  if (p.layer) {  // the variance about the mean, in a second pass, as rounding asks for
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
    const float normed = (v - mean) * inverse * p.weight[i];
    out[i] = from_float<Y>(p.bias ? normed + p.bias[i] : normed);
  };
#pragma unroll
  for (int j = 0; j < kKept; ++j) {
    const int64_t i = threadIdx.x + int64_t{j} * blockDim.x;
    if (i < dim) write(i, kept[j]);
  }
  for (int64_t i = threadIdx.x + int64_t{kKept} * blockDim.x; i < dim; i += blockDim.x) write(i, to_float(row[i]));
}

int norm_threads(int64_t dim) { return dim <= 256 ? 32 : dim <= 2048 ? 256 : 512; }

// Rows of elements; stride 0 makes one row serve for all.
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
  __device__ void operator()(int64_t r, int64_t c) const { x.at(r, c) = from_float<X>(to_float(x.at(r, c)) + to_float(y.at(r, c))); }
};

template <class T>
struct ActMul {
  Rows<T> y, gate, up;
  int act;
  __device__ void operator()(int64_t r, int64_t c) const {
    y.at(r, c) = from_float<T>(activate(to_float(gate.at(r, c)), act) * to_float(up.at(r, c)));
  }
};

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
struct Gather {
  Rows<T> y, x;
  const int32_t* rows;
  __device__ void operator()(int64_t r, int64_t c) const { y.at(r, c) = x.at(rows[r], c); }
};

template <class F>
__global__ void each_kernel(int64_t n, int64_t cols, F f) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) f(i / cols, i % cols);
}

// f(row, column) for all elements.
template <class F>
void each(const Tensor& t, cudaStream_t stream, F f) {
  const int64_t n = t.rows * t.cols;
  if (n > 0) each_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream>>>(n, t.cols, f);
}

}  // namespace

void convert(const Tensor& y, const Tensor& x, cudaStream_t stream) {
  with_type(y.dtype, [&](auto* py) {
    with_type(x.dtype, [&](auto* px) {
      using Y = std::remove_pointer_t<decltype(py)>;
      using X = std::remove_pointer_t<decltype(px)>;
      each(y, stream, Convert<Y, X>{rows_of<Y>(y), rows_of<X>(x)});
    });
  });
}

void norm_rows(const Tensor& y, const Tensor& x, const NormArgs& args, cudaStream_t stream) {
  if (x.rows == 0) return;
  with_type(y.dtype, [&](auto* py) {
    with_type(x.dtype, [&](auto* px) {
      using Y = std::remove_pointer_t<decltype(py)>;
      using X = std::remove_pointer_t<decltype(px)>;
      norm_kernel<X, Y, float, false><<<static_cast<unsigned>(x.rows), norm_threads(x.cols), 0, stream>>>(
          static_cast<Y*>(y.data), y.stride, static_cast<X*>(x.data), x.stride, nullptr, 0, x.cols, params_of(args));
    });
  });
}

void add_norm_rows(const Tensor& out, const Tensor& residual, const Tensor& y, const NormArgs& args, cudaStream_t stream) {
  if (residual.rows == 0) return;
  with_type(out.dtype, [&](auto* po) {
    with_type(y.dtype, [&](auto* py) {
      using O = std::remove_pointer_t<decltype(po)>;
      using Y = std::remove_pointer_t<decltype(py)>;
      norm_kernel<float, O, Y, true><<<static_cast<unsigned>(residual.rows), norm_threads(residual.cols), 0, stream>>>(
          static_cast<O*>(out.data), out.stride, residual.f32(), residual.stride, static_cast<const Y*>(y.data), y.stride,
          residual.cols, params_of(args));
    });
  });
}

void add_rows(const Tensor& x, const Tensor& y, bool y_is_one_row, cudaStream_t stream) {
  with_type(x.dtype, [&](auto* px) {
    with_type(y.dtype, [&](auto* py) {
      using X = std::remove_pointer_t<decltype(px)>;
      using Y = std::remove_pointer_t<decltype(py)>;
      Rows<Y> from = rows_of<Y>(y);
      if (y_is_one_row) from.stride = 0;
      each(x, stream, Add<X, Y>{rows_of<X>(x), from});
    });
  });
}

void act_mul_rows(const Tensor& y, const Tensor& gate, const Tensor& up, Activation act, cudaStream_t stream) {
  CHECK(y.dtype == gate.dtype && y.dtype == up.dtype);
  with_type(y.dtype, [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    each(y, stream, ActMul<T>{rows_of<T>(y), rows_of<T>(gate), rows_of<T>(up), static_cast<int>(act)});
  });
}

void scale_rows(const Tensor& x, float factor, float softcap, cudaStream_t stream) {
  with_type(x.dtype, [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    each(x, stream, Scale<T>{rows_of<T>(x), factor, softcap});
  });
}

void gather(const Tensor& y, const Tensor& x, const int32_t* rows, cudaStream_t stream) {
  CHECK(y.dtype == x.dtype);
  with_type(y.dtype, [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    each(y, stream, Gather<T>{rows_of<T>(y), rows_of<T>(x), rows});
  });
}

}  // namespace ingot::cuda
