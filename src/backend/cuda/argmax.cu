// The largest logit of each row, and the next step's tokens from what was drawn.
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

__global__ void take_kernel(int32_t* tokens, int64_t n, const Key* keys, const RowDrawn* drawn) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n || tokens[i] >= 0) return;
  const int row = -1 - tokens[i];
  const int32_t token = keys == nullptr ? drawn[row].token : keys[row] == 0 ? 0 : id_of(keys[row]);
  tokens[i] = token < 0 ? 0 : token;  // none could be drawn: nobody wants what comes of it
}

}  // namespace

void take_drawn(int32_t* tokens, int64_t n, const Key* keys, const RowDrawn* drawn, cudaStream_t stream) {
  take_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream>>>(tokens, n, keys, drawn);
}

void argmax_rows(Key* best, const Tensor& logits, cudaStream_t stream) {
  const dim3 grid(blocks_for(logits.cols, kThreads * 16), static_cast<unsigned>(logits.rows));
  argmax_kernel<<<grid, kThreads, 0, stream>>>(best, logits.f32(), logits.stride, logits.cols);
}

}  // namespace ingot::cuda
