// Finds the largest logit of each row, and uploads the next batch with the drawn tokens.
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/sampling/logit_key.cuh"

namespace ingot::cuda {
namespace {

constexpr int kThreads = 256;

constexpr int kEach = 16;  // logits of a thread

// The largest of a block's logits, and the sum of exp(logit - largest). Sums are over fixed shares, in a fixed order.
__device__ RowArgmax::Part part_of(const float (&logits)[kEach], float* shared /* [2, warps] */) {
  float largest = -INFINITY, sum = 0;
#pragma unroll
  for (const float v : logits) largest = fmaxf(largest, v);
  const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int s = 16; s > 0; s /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, s));
  if (threadIdx.x % 32 == 0) shared[warp] = largest;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) largest = fmaxf(largest, shared[w]);
  const float base = isinf(largest) ? 0.0f : largest;
#pragma unroll
  for (const float v : logits) sum += isnan(v) ? 0.0f : __expf(v - base);
#pragma unroll
  for (int s = 16; s > 0; s /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, s);
  if (threadIdx.x % 32 == 0) shared[kThreads / 32 + warp] = sum;
  __syncthreads();
  sum = 0;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) sum += shared[kThreads / 32 + w];
  return {base, sum};
}

// The logarithm of the largest logit's probability.
__device__ float logprob_of(const RowArgmax& row, int n_blocks, Key max_key) {
  const float largest = logit_of(max_key);
  float sum = 0;
  for (int i = 0; i < n_blocks; ++i) {
    const volatile RowArgmax::Part& part = row.parts[i];
    sum += part.sum * expf(part.largest - largest);
  }
  return -logf(sum);
}

// The last block of a row writes the result, also for the host, and clears the counters. A memset and a copy instead
// made a step about 5 us longer.
__global__ void argmax_kernel(Key* best, Key* copy, float* logprobs, RowArgmax* rows, const float* logits,
                              int64_t stride, int64_t n) {
  __shared__ float shared[2 * kThreads / 32];
  const float* row = logits + blockIdx.y * stride;
  RowArgmax& all = rows[blockIdx.y];
  const int64_t first = int64_t{blockIdx.x} * kThreads * kEach + threadIdx.x;
  float own[kEach];
  Key max_key = 0;
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int64_t i = first + j * kThreads;
    own[j] = i < n ? row[i] : -INFINITY;
  }
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int64_t i = first + j * kThreads;
    const Key key = i < n ? key_of(own[j], i) : 0;
    max_key = key > max_key ? key : max_key;
  }
#pragma unroll
  for (int s = 16; s > 0; s /= 2) {
    const Key other = __shfl_xor_sync(0xFFFFFFFFu, max_key, s);
    max_key = other > max_key ? other : max_key;
  }
  if (threadIdx.x % 32 == 0 && max_key != 0) atomicMax(&all.max_key, max_key);
  if (logprobs != nullptr) {
    const RowArgmax::Part part = part_of(own, shared);
    if (threadIdx.x == 0) all.parts[blockIdx.x] = part;
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x != 0 || atomicAdd(&all.n_blocks, 1u) != gridDim.x - 1) return;
  __threadfence();
  max_key = atomicExch(&all.max_key, Key{0});
  best[blockIdx.y] = copy[blockIdx.y] = max_key;
  if (logprobs != nullptr) logprobs[blockIdx.y] = logprob_of(all, static_cast<int>(gridDim.x), max_key);
  all.n_blocks = 0;
}

__device__ int32_t token_drawn(int32_t token, const Key* keys, const RowDrawn* drawn) {
  if (token >= 0) return token;
  const int row = -1 - token;
  const int32_t was = keys == nullptr ? drawn[row].token : keys[row] == 0 ? 0 : id_of(keys[row]);
  return was < 0 ? 0 : was;  // no token could be drawn; the result is not used
}

__global__ void bring_kernel(int4* to, const int4* from, int64_t n, DrawnTokens tokens, TableWrites writes,
                             FloatCopy copy) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) {
    if (const int64_t pack = i - n - writes.n / 2; pack >= 0) {
      if (pack < copy.n / 4)
        reinterpret_cast<float4*>(copy.to)[pack] = reinterpret_cast<const float4*>(copy.from)[pack];
      return;
    }
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

dim3 argmax_grid(const Tensor& logits) {
  return {blocks_for(logits.cols, kThreads * kEach), static_cast<unsigned>(logits.rows)};
}

}  // namespace

void upload_batch(int32_t* to, const int32_t* from, int64_t n, const DrawnTokens& tokens, const TableWrites& writes,
                  const FloatCopy& copy, Device& device) {
  const int64_t quads = (n + 3) / 4;
  bring_kernel<<<blocks_for(quads + writes.n / 2 + copy.n / 4, kThreads), kThreads, 0, device.stream()>>>(
      reinterpret_cast<int4*>(to), reinterpret_cast<const int4*>(from), quads, tokens, writes, copy);
}

bool can_argmax_logprob(const Tensor& logits) { return argmax_grid(logits).x <= kMaxArgmaxBlocks; }

void argmax_rows(Key* best, Key* copy, float* logprobs, RowArgmax* rows, const Tensor& logits, Device& device) {
  argmax_kernel<<<argmax_grid(logits), kThreads, 0, device.stream()>>>(best, copy, logprobs, rows, logits.f32(),
                                                                       logits.stride, logits.cols);
}

}  // namespace ingot::cuda
