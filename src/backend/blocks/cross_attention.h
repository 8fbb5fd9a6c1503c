// Attention to the rows of a source, such as an encoder's output (arXiv:1706.03762, 3.2.3). The keys of a source are
// made once, in the step that brings it, and stay in a cache of sources.
#pragma once
#include "backend/block.h"

namespace ingot {

struct CrossAttentionBlock {
  Tensor x;               // in, out: [max_tokens, dim]
  NormArgs norm;          // weight [1, dim]
  Tensor source;          // [max_source_rows, source_dim], the program's
  Weight wq;              // [n_heads * head_dim, dim]
  Weight wk, wv;          // [n_heads * head_dim, source_dim]
  Weight wo;              // [dim, n_heads * head_dim]
  Tensor bq, bk, bv, bo;  // [1, rows of the weight] or empty
  AttentionArgs attention;
  KvCache* kv = nullptr;  // of sources
  // Keeps the queries of a step and the keys of its sources, from which a caller can compute what each token looks at.
  bool keeps = false;
  Tensor kept_q, kept_k;             // out: f32 [max_tokens | max_source_rows, n_heads * head_dim]
  Tensor normed, q, k, v, attended;  // scratch; k, v: [max_source_rows, n_heads * head_dim]
  void lay_out(Buffers& buffers);
};
void run_block(const CrossAttentionBlock& b, Backend& backend);

}  // namespace ingot
