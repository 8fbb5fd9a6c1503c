// Kernels for measure_peak: one reads memory, one writes random numbers for the product.
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace ingot::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void read_kernel(const uint4* data, int64_t n, float* sink) {
  uint32_t bits = 0;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + 3 * step < n; i += 4 * step) {
    uint4 v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = load_stream(data + i + j * step);
#pragma unroll
    for (int j = 0; j < 4; ++j) bits |= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  for (; i < n; i += step) bits |= data[i].x;
  if (bits == 0x12345678u) *sink = 1;  // keeps the compiler from removing the loads
}

// Random numbers from -1 to 1. With zeros or a constant, the product would use less power than with a model's numbers,
// and so run faster.
template <class T>
__global__ void noise_kernel(T* data, int64_t n) {
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += int64_t{gridDim.x} * kThreads) {
    uint32_t bits = static_cast<uint32_t>(i) * 0x9E3779B9u;
    bits = (bits ^ bits >> 16) * 0x85EBCA6Bu;
    bits = (bits ^ bits >> 13) * 0xC2B2AE35u;
    data[i] = from_float<T>(static_cast<float>(static_cast<int32_t>(bits ^ bits >> 16)) * 0x1p-31f);
  }
}

}  // namespace

bool has_code() {
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, read_kernel) == cudaSuccess) return true;
  cudaGetLastError();  // otherwise the next check_launch() would report this error
  return false;
}

void fill_noise(const Tensor& t, Device& device) {
  with_type(t.dtype, [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    noise_kernel<T><<<1024, kThreads, 0, device.stream()>>>(static_cast<T*>(t.data), t.rows * t.cols);
  });
}

void read_all(const void* data, size_t bytes, float* sink, Device& device) {
  read_kernel<<<132 * 16, kThreads, 0, device.stream()>>>(static_cast<const uint4*>(data),
                                                          static_cast<int64_t>(bytes / 16), sink);
}

}  // namespace ingot::cuda
