// A layer of attention and a feed-forward whose weights several places of a model share (Zamba 2, arXiv:2411.15242).
// The layer reads the residual stream and the embeddings side by side. Its output is added to the input of the mixer
// after it, not to the stream. Adapters of low rank belong to one place each.
#pragma once
#include "backend/block.h"
#include "backend/blocks/low_rank.h"

namespace ingot {

// Copies the embeddings, for the blocks that read them.
struct KeepEmbeddingBlock {
  Tensor x;        // [max_tokens, dim]
  Tensor streams;  // out: [max_tokens, dim], the program's
  void lay_out(Buffers&) {}
};
void run_block(const KeepEmbeddingBlock& b, Backend& backend);

struct SharedTransformerBlock {
  Tensor x;                       // [max_tokens, dim]
  Tensor fork;                    // in, out: [max_tokens, dim], the program's: x, to which the output is added
  Tensor streams;                 // [max_tokens, dim], the program's: the embeddings
  NormArgs norm;                  // weight [1, 2 * dim]
  Weight wq, wk, wv;              // [n_heads * head_dim, 2 * dim], [n_kv_heads * head_dim, 2 * dim] twice
  LowRank more_q, more_k, more_v;  // adapters of these, or empty
  int rope_table = -1;            // kNoRope
  RopeArgs rope;
  AttentionArgs attention;
  KvCache* kv = nullptr;
  Weight wo;                      // [dim, n_heads * head_dim]
  NormArgs ffn_norm;              // weight [1, dim]
  Weight w_gate_up;               // [2 * ffn, dim]
  LowRank more_gate_up;
  Weight w_down;                  // [dim, ffn]
  Weight w_out;                   // [dim, dim]
  Activation act = Activation::kGelu;
  int ffn_dim = 0, adapter_rank = 0;
  Tensor pair, input, low, added, q, k, v, attended, t, t_normed, hidden;  // scratch
  void lay_out(Buffers& buffers);
};
void run_block(const SharedTransformerBlock& b, Backend& backend);

}  // namespace ingot
