// Shared by the two versions of the rank-one rule: rank_one.cu, token by token, and rank_one_chunks.cu, 16 tokens at
// once.
#pragma once
#include "backend/cuda/recurrence/recurrence.h"

namespace ingot::cuda::recurrence {

struct RankOne {
  float* y;
  const float* q;
  float *keep, *a, *b;  // overwritten by chunks
  const float *k, *v;
  int64_t y_stride, q_stride, keep_stride, a_stride, b_stride, k_stride, v_stride;
  int n_heads, key_dim, value_dim;
  int fewest_chunked;  // whole chunks of sequences with at least this many tokens are done already
  DeviceStates states;
  DeviceBatch batch;
};

// rank_one_chunks.cu: the whole chunks of all sequences of at least kFewestRuleTokens.
inline constexpr int kRuleChunk = 16, kFewestRuleTokens = 64;
bool can_chunk_rule(const RankOneRuleArgs& args, const RankOne& p);
void rule_chunks(const RankOne& p, int n_seqs, int most_tokens, Device& device);

}  // namespace ingot::cuda::recurrence
