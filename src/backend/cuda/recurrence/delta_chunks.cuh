// Shared by the two kernels of the chunked delta rule. delta_chunks.cu explains both kernels, and where the first
// kernel stores its results for the second kernel, delta_walk.cu.
#pragma once
#include "backend/cuda/launch.cuh"
#include "backend/cuda/recurrence/recurrence.cuh"
#include "backend/cuda/recurrence/tiles.cuh"

namespace ingot::cuda::recurrence {

inline constexpr int kTokens = 64, kDim = 128;  // tokens in a chunk; key and value dimension
inline constexpr int kChunkWarps = 8, kChunkThreads = 32 * kChunkWarps;
inline constexpr int kRow = kDim + 8, kSquare = kTokens + 8;  // row strides in halves, against bank conflicts

// The i-th value head of a key head, and the addresses of its data.
__device__ __forceinline__ int value_head(const Delta& p, int key_head, int i) {
  return p.tiled ? i * p.n_key_heads + key_head : key_head * (p.n_heads / p.n_key_heads) + i;
}
struct Places {
  float *q, *k, *v;  // rows of token 0
  half* p;

  __device__ Places(const Delta& d, int key_head, int i)
      : q(d.qkv + key_head * kDim),
        k(q + d.n_key_heads * kDim),
        v(d.qkv + 2 * d.n_key_heads * kDim + value_head(d, key_head, i) * kDim),
        p(reinterpret_cast<half*>(i < 2 ? q : k) + kDim + i % 2 * kTokens) {}
};

// delta_walk.cu
size_t walk_bytes();  // of shared memory
void walk_chunks(const Delta& p, int n_seqs, Device& device);

}  // namespace ingot::cuda::recurrence
