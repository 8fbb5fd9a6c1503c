// Ops of models with several residual streams (AltUp, arXiv:2301.13310), and of their sparse activations.
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace ingot::cuda {
namespace {

constexpr int kThreads = 256;

// One block for each row of y.
__global__ void match_size_kernel(float* y, int64_t y_stride, const float* x, int64_t x_stride, int n_of_row,
                                  int64_t dim) {
  __shared__ float shared[33];
  start_dependent();
  float* to = y + blockIdx.x * y_stride;
  const float* from = x + blockIdx.x / n_of_row * x_stride;
  float wanted = 0, own = 0;
  for (int64_t i = threadIdx.x; i < dim; i += blockDim.x) wanted += from[i] * from[i], own += to[i] * to[i];
  wanted = block_sum(wanted, shared) / static_cast<float>(dim);
  own = block_sum(own, shared) / static_cast<float>(dim);
  const float factor = sqrtf(wanted / fmaxf(own, kLeastMeanSquare));
  for (int64_t i = threadIdx.x; i < dim; i += blockDim.x) to[i] *= factor;
}

// One thread for each column of a token.
__global__ void mix_streams_kernel(float* x, int64_t x_stride, float* streams, int64_t stride, const float* coefs,
                                   int64_t coefs_stride, int n, int64_t dim) {
  start_dependent();
  const int64_t column = int64_t{blockIdx.y} * kThreads + threadIdx.x, row = blockIdx.x;
  if (column >= dim) return;
  float old[kMaxStreams];
  const auto at = [&](int i) -> float& {
    return i == 0 ? x[row * x_stride + column] : streams[row * stride + (i - 1) * dim + column];
  };
#pragma unroll
  for (int i = 0; i < kMaxStreams; ++i) old[i] = i < n ? at(i) : 0.0f;
  for (int i = 0; i < n; ++i) {
    float sum = at(i);
#pragma unroll
    for (int j = 0; j < kMaxStreams; ++j)
      if (j < n) sum += coefs[row * coefs_stride + i * n + j] * old[j];
    at(i) = sum;
  }
}

__global__ void correct_streams_kernel(float* x, int64_t x_stride, const float* predicted, int64_t predicted_stride,
                                       float* streams, int64_t stride, const float* coefs, int64_t coefs_stride, int n,
                                       int64_t dim) {
  start_dependent();
  const int64_t column = int64_t{blockIdx.y} * kThreads + threadIdx.x, row = blockIdx.x;
  if (column >= dim) return;
  const float was = predicted[row * predicted_stride + column], change = x[row * x_stride + column] - was;
  const float* c = coefs + row * coefs_stride;
  x[row * x_stride + column] = was + change * (1.0f + c[0]);
  for (int i = 1; i < n; ++i) streams[row * stride + (i - 1) * dim + column] += change * (1.0f + c[i]);
}

// One block for each row.
template <class T>
__global__ void keep_above_kernel(T* x, int64_t stride, int64_t dim, float deviations) {
  __shared__ float shared[33];
  start_dependent();
  T* row = x + blockIdx.x * stride;
  float sum = 0, squares = 0;
  for (int64_t i = threadIdx.x; i < dim; i += blockDim.x) sum += to_float(row[i]);
  const float mean = block_sum(sum, shared) / static_cast<float>(dim);
  for (int64_t i = threadIdx.x; i < dim; i += blockDim.x) {
    const float v = to_float(row[i]) - mean;
    squares += v * v;
  }
  const float cut = mean + deviations * sqrtf(block_sum(squares, shared) / static_cast<float>(dim));
  for (int64_t i = threadIdx.x; i < dim; i += blockDim.x) row[i] = from_float<T>(fmaxf(to_float(row[i]) - cut, 0.0f));
}

dim3 columns_of(const Tensor& t) {
  return dim3(static_cast<unsigned>(t.rows), static_cast<unsigned>((t.cols + kThreads - 1) / kThreads));
}

}  // namespace

void match_size_rows(const Tensor& y, const Tensor& x, Device& device) {
  if (y.rows == 0) return;
  launch(device, match_size_kernel, dim3(static_cast<unsigned>(y.rows)), kThreads, 0, y.f32(), y.stride, x.f32(),
         x.stride, static_cast<int>(y.rows / x.rows), y.cols);
}

void mix_stream_rows(const Tensor& x, const Tensor& streams, const Tensor& coefs, Device& device) {
  if (x.rows == 0) return;
  const int n = static_cast<int>(streams.cols / x.cols) + 1;
  launch(device, mix_streams_kernel, columns_of(x), kThreads, 0, x.f32(), x.stride, streams.f32(), streams.stride,
         coefs.f32(), coefs.stride, n, x.cols);
}

void correct_stream_rows(const Tensor& x, const Tensor& predicted, const Tensor& streams, const Tensor& coefs,
                         Device& device) {
  if (x.rows == 0) return;
  const int n = static_cast<int>(streams.cols / x.cols) + 1;
  launch(device, correct_streams_kernel, columns_of(x), kThreads, 0, x.f32(), x.stride, predicted.f32(),
         predicted.stride, streams.f32(), streams.stride, coefs.f32(), coefs.stride, n, x.cols);
}

void keep_above_rows(const Tensor& x, float deviations, Device& device) {
  if (x.rows == 0) return;
  with_type(x.dtype, [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    launch(device, keep_above_kernel<T>, dim3(static_cast<unsigned>(x.rows)), kThreads, 0, static_cast<T*>(x.data),
           x.stride, x.cols, deviations);
  });
}

}  // namespace ingot::cuda
