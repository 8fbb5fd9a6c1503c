// The layers of towers whose products are clipped: each matrix has limits of its inputs and of its outputs.
#pragma once
#include <limits>

#include "backend/block.h"

namespace ingot {

struct ClippedProduct {
  Weight w;  // [n_out, n_in]
  float in_low = -std::numeric_limits<float>::infinity(), in_high = std::numeric_limits<float>::infinity();
  float out_low = -std::numeric_limits<float>::infinity(), out_high = std::numeric_limits<float>::infinity();
};

// y = clip(clip(x) w^T). clipped: scratch, [n, n_in] or wider.
void multiply(Backend& backend, const Tensor& y /* out [n, n_out] */, const Tensor& x /* [n, n_in] */,
              const ClippedProduct& product, const Tensor& clipped);

// x += post_norm(attention(norm(x))), where heads of queries and keys have norms and ropes, and values a norm.
struct ClippedAttentionBlock {
  Tensor x;       // in, out: [max_tokens, dim]
  NormArgs norm;  // weight [1, dim]
  ClippedProduct q, k, v, o;
  NormArgs q_norm, k_norm;  // weight [1, head_dim]
  NormArgs v_norm;          // of each head, without a weight
  NormArgs post_norm;       // weight [1, dim]
  int rope_table = 0;
  RopeArgs rope;  // angles [max_tokens, rot_dim]
  AttentionArgs attention;
  KvCache* kv = nullptr;
  Tensor input, clipped, queries, keys, values, attended, branch;  // scratch
  void lay_out(Buffers& buffers);
};
void run_block(const ClippedAttentionBlock& b, Backend& backend);

// x += post_norm(down(act(gate(norm(x))) * up(norm(x))))
struct ClippedFeedForwardBlock {
  Tensor x;       // in, out: [max_tokens, dim]
  NormArgs norm;  // weight [1, dim]
  ClippedProduct gate, up, down;
  Activation act = Activation::kGeluTanh;
  NormArgs post_norm;                             // weight [1, dim]
  Tensor input, clipped, hidden, factor, branch;  // scratch
  void lay_out(Buffers& buffers);
};
void run_block(const ClippedFeedForwardBlock& b, Backend& backend);

}  // namespace ingot
