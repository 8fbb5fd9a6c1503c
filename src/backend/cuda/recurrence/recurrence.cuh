// Shared by the two versions of the gated delta rule: recurrence.cu, token by token, and delta_chunks.cu, 64 tokens at
// once.
#pragma once
#include "backend/cuda/recurrence/copies.cuh"
#include "backend/cuda/recurrence/recurrence.h"

namespace ingot::cuda::recurrence {

struct Delta {
  float* y;
  float *qkv, *beta, *alpha;  // overwritten
  const float *decay, *dt;
  int64_t y_stride, qkv_stride, beta_stride, alpha_stride;
  int n_heads, n_key_heads, key_dim, value_dim;
  bool tiled;
  bool packs;           // rows of q and k can be read 16 bytes at a time
  int fewest_chunked;   // sequences with at least this many tokens use chunks
  float share;
  DeviceStates states;  // the matrices
  DeviceBatch batch;
};

// In sequences of at least this many tokens, the inputs of several tokens are read at once.
inline constexpr int kManyTokens = 16;

// delta_chunks.cu: for all sequences of at least kChunkedTokens.
inline constexpr int kChunkedTokens = 64;
bool can_chunk(const Device& device, const Delta& p);
void delta_chunks(const Delta& p, int n_seqs, int most_tokens, Device& device);

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

}  // namespace ingot::cuda::recurrence
