// Attention with keys and values of each token, in the KV cache.
#pragma once
#include <optional>

#include "backend/block.h"
#include "backend/blocks/join.h"

namespace ingot {

struct AttentionBlock {
  Tensor x;                   // in, out: [max_tokens, dim]
  bool reads_pair = false;    // q, k and v are projections of `pair`, not of x; the weights have 2 * dim columns
  Tensor pair;                // [max_tokens, 2 * dim], the program's
  NormArgs norm;              // weight [1, dim] or empty
  bool follows_sum = false;   // the block before may compute the norm: Join::next_norm
  bool beside = false;        // the input is the fork, not x
  Tensor fork;                // [max_tokens, dim], the program's
  bool only_queries = false;  // the keys and values are those of an earlier layer; wk and wv are empty
  Weight wq, wk, wv;  // [n_heads * head_dim, dim], [n_kv_heads * head_dim, dim] twice; no wv: v = k before norms
  Tensor bq, bk, bv;          // [1, rows of the weight] or empty
  NormArgs q_norm, k_norm;    // weight [1, head_dim] or [1, rows of the weight] or empty
  NormArgs v_norm;            // of each head, without a weight; only with norms_values
  bool norms_values = false;
  bool norms_heads = false;  // q and k have norms of each head without a weight
  bool norms_after_rope = false;
  PositionScale query_scale;
  int rope_table = kNoRope;
  RopeArgs rope;  // angles [max_tokens, rot_dim] or empty
  AttentionArgs attention;
  bool only_keys = false;  // writes keys and values to the cache, and leaves x as it is
  KvCache* kv = nullptr;
  // [n_heads * head_dim, dim], or [n_heads, dim], or empty: sigmoid(gate) multiplies the output of attention
  Weight gate;
  bool softplus_gate = false;  // in place of sigmoid
  Weight wo;    // [dim, n_heads * head_dim]
  Tensor bo;    // [1, dim] or empty
  Join join;
  std::optional<HeadsOfRanks> heads_of_ranks;  // as in QkvArgs
  bool has_gate = false;                       // set before the weights are loaded
  Tensor normed;                               // x after the norm, [max_tokens, dim]: the first scratch of all blocks
  Tensor q, k, v, attended, gates, branch;     // scratch
  // Whether the fused op makes q, k and v.
  bool is_fused() const { return !only_queries && !norms_values && !norms_heads && !norms_after_rope && wv; }
  void lay_out(Buffers& buffers);
};
void run_block(const AttentionBlock& b, Backend& backend);

}  // namespace ingot
