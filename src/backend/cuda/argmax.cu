// The largest logit of each row.
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/logit_key.cuh"

namespace ingot::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void argmax_kernel(Key* best, const float* logits, int64_t stride, int64_t n) {
  const float* row = logits + blockIdx.y * stride;
  Key most = 0;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += int64_t{gridDim.x} * kThreads) {
    const Key key = key_of(row[i], i);
    most = key > most ? key : most;
  }
#pragma unroll
  for (int s = 16; s > 0; s /= 2) {
    const Key other = __shfl_xor_sync(0xFFFFFFFFu, most, s);
    most = other > most ? other : most;
  }
  if (threadIdx.x % 32 == 0 && most != 0) atomicMax(best + blockIdx.y, most);
}

}  // namespace

void argmax_rows(Key* best, const Tensor& logits, cudaStream_t stream) {
  const dim3 grid(blocks_for(logits.cols, kThreads * 16), static_cast<unsigned>(logits.rows));
  argmax_kernel<<<grid, kThreads, 0, stream>>>(best, logits.f32(), logits.stride, logits.cols);
}

}  // namespace ingot::cuda
