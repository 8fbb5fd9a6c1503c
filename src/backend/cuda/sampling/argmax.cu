// Finds the largest logit of each row, and uploads the next batch with the drawn tokens.
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/sampling/logit_key.cuh"

namespace ingot::cuda {
namespace {

constexpr int kThreads = 256;

// The last block of a row writes the result, also for the host, and clears the counters. A memset and a copy instead
// made a step about 5 us longer.
__global__ void argmax_kernel(Key* best, Key* copy, RowArgmax* rows, const float* logits, int64_t stride, int64_t n) {
  const float* row = logits + blockIdx.y * stride;
  RowArgmax& all = rows[blockIdx.y];
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
  if (threadIdx.x % 32 == 0 && most != 0) atomicMax(&all.most, most);
  __threadfence();
  __syncthreads();
  if (threadIdx.x != 0 || atomicAdd(&all.n_blocks, 1u) != gridDim.x - 1) return;
  __threadfence();
  best[blockIdx.y] = copy[blockIdx.y] = atomicExch(&all.most, Key{0});
  all.n_blocks = 0;
}

__device__ int32_t token_drawn(int32_t token, const Key* keys, const RowDrawn* drawn) {
  if (token >= 0) return token;
  const int row = -1 - token;
  const int32_t was = keys == nullptr ? drawn[row].token : keys[row] == 0 ? 0 : id_of(keys[row]);
  return was < 0 ? 0 : was;  // no token could be drawn; the result is not used
}

__global__ void bring_kernel(int4* to, const int4* from, int64_t n, DrawnTokens tokens, TableWrites writes) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) {
    if (i - n >= writes.n / 2) return;
    const int4 two = reinterpret_cast<const int4*>(writes.pairs)[i - n];
    writes.table[two.x] = two.y;
    writes.table[two.z] = two.w;
    return;
  }
  int4 words = from[i];
  const int64_t first = i * 4 - tokens.first;
  const auto is_token = [&](int word) { return first + word >= 0 && first + word < tokens.n; };
  if (is_token(0)) words.x = token_drawn(words.x, tokens.keys, tokens.drawn);
  if (is_token(1)) words.y = token_drawn(words.y, tokens.keys, tokens.drawn);
  if (is_token(2)) words.z = token_drawn(words.z, tokens.keys, tokens.drawn);
  if (is_token(3)) words.w = token_drawn(words.w, tokens.keys, tokens.drawn);
  to[i] = words;
}

}  // namespace

void upload_batch(int32_t* to, const int32_t* from, int64_t n, const DrawnTokens& tokens, const TableWrites& writes,
                  Device& device) {
  const int64_t quads = (n + 3) / 4;
  bring_kernel<<<blocks_for(quads + writes.n / 2, kThreads), kThreads, 0, device.stream()>>>(
      reinterpret_cast<int4*>(to), reinterpret_cast<const int4*>(from), quads, tokens, writes);
}

void argmax_rows(Key* best, Key* copy, RowArgmax* rows, const Tensor& logits, Device& device) {
  const dim3 grid(blocks_for(logits.cols, kThreads * 16), static_cast<unsigned>(logits.rows));
  argmax_kernel<<<grid, kThreads, 0, device.stream()>>>(best, copy, rows, logits.f32(), logits.stride, logits.cols);
}

}  // namespace ingot::cuda
