// The product for all sizes and alignments: one warp for each output. Used for odd shapes that cuBLASLt refuses.
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace ingot::cuda {
namespace {

constexpr int kWarps = 4;

template <class T, class Y>
__global__ void plain_kernel(Y* y, int64_t y_stride, const T* x, int64_t x_stride, const T* w, int64_t n_out,
                             int64_t n_in, bool accumulate) {
  const int64_t row = int64_t{blockIdx.y} * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= n_out) return;
  float sum = 0;
  for (int64_t k = lane; k < n_in; k += 32) sum += to_float(x[blockIdx.x * x_stride + k]) * to_float(w[row * n_in + k]);
  sum = warp_sum(sum);
  Y& out = y[blockIdx.x * y_stride + row];
  if (lane == 0) out = from_float<Y>(accumulate ? to_float(out) + sum : sum);
}

}  // namespace

void plain_matmul(const Tensor& y, const Tensor& x, const PackedWeight& w, bool accumulate, Device& device) {
  CHECK(w.layout == Layout::kDense && x.dtype == (w.f32 ? DType::kF32 : DType::kF16));
  if (x.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(x.rows), blocks_for(w.n_out, kWarps));
  with_type(x.dtype, [&](auto* px) {
    with_type(y.dtype, [&](auto* py) {
      using T = std::remove_pointer_t<decltype(px)>;
      using Y = std::remove_pointer_t<decltype(py)>;
      plain_kernel<<<grid, kWarps * 32, 0, device.stream()>>>(
          static_cast<Y*>(y.data), y.stride, static_cast<const T*>(x.data), x.stride, static_cast<const T*>(w.data),
          w.n_out, w.n_in, accumulate);
    });
  });
}

}  // namespace ingot::cuda
