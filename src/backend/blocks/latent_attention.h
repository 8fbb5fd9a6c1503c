// Attention over latents (arXiv:2405.04434, 2.1.2): keys and values are never computed. Each head multiplies its query
// by its transposed key projection and attends to latents. The head's value projection then multiplies the sum of
// latents. A latent is stored in the cache as [rope_dim | kv_rank], and is both key and value.
#pragma once
#include "backend/block.h"
#include "backend/blocks/join.h"

namespace ingot {

struct LatentAttentionBlock {
  Tensor x;                  // in, out: [max_tokens, dim]
  NormArgs norm;             // weight [1, dim]
  bool follows_sum = false;  // as in AttentionBlock
  bool beside = false;       // the input is the fork, not x
  Tensor fork;               // [max_tokens, dim], the program's
  Weight wq_a;               // [q_rank, dim] or empty: then wq multiplies x itself
  NormArgs q_a_norm;         // weight [1, q_rank]
  Weight wq;                 // [n_heads * (nope_dim + rope_dim), q_rank or dim]
  Weight wkv_a;              // [kv_rank + rope_dim, dim]
  NormArgs kv_a_norm;        // weight [1, kv_rank]
  Weight wk_b, wv_b;         // n_heads matrices [kv_rank, nope_dim]; n_heads matrices [value_dim, kv_rank]
  Weight wo;                 // [dim, n_heads * value_dim]
  Tensor bo;                 // [1, dim] or empty
  int q_rank = 0, kv_rank = 0, nope_dim = 0, rope_dim = 0, value_dim = 0;
  int rope_table = 0;
  RopeArgs rope;            // angles [max_tokens, rope_dim] or empty
  PositionScale query_scale;
  AttentionArgs attention;  // head_dim is kv_rank + rope_dim, n_kv_heads 1
  bool only_keys = false;   // as in AttentionBlock
  KvCache* kv = nullptr;
  Join join;
  Tensor normed;    // as in AttentionBlock
  Tensor head_ids;  // [max_tokens, n_heads], shared by the program: head h is expert h in moe_matmul
  Tensor q_low, q_heads, q, latent, k, attended, values, branch;  // scratch
  void lay_out(Buffers& buffers);
};
void run_block(const LatentAttentionBlock& b, Backend& backend);

}  // namespace ingot
