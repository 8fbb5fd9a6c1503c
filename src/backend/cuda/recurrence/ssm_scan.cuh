// Shared by the two versions of Mamba-2's scan: ssm_scan.cu, token by token, and ssm_chunks.cu, 64 tokens at once.
#pragma once
#include "backend/cuda/launch.cuh"
#include "backend/cuda/recurrence/recurrence.cuh"

namespace ingot::cuda::recurrence {

struct Scan {
  float* y;
  const float* x;
  float *b, *c, *dt, *keep;  // overwritten
  const float *decay, *dt_bias, *skip;
  int64_t y_stride, x_stride, b_stride, c_stride, dt_stride, keep_stride;
  int n_heads, n_groups, head_dim, state_dim;
  int fewest_chunked;  // sequences with at least this many tokens use chunks
  float min_step, max_step;
  DeviceStates states;
  DeviceBatch batch;
};

__device__ __forceinline__ float step_of(const Scan& p, float dt, float bias) {
  return fminf(fmaxf(softplus(dt + bias), p.min_step), p.max_step);
}

// ssm_chunks.cu: for all sequences of at least kChunkedScanTokens.
inline constexpr int kChunkedScanTokens = 64;
bool can_chunk_scan(const Device& device, const Scan& p);
// matrices: see ssm_part_floats() (recurrence.h).
void scan_chunks(const Scan& p, float* matrices, int n_seqs, int most_tokens, Device& device);

}  // namespace ingot::cuda::recurrence
