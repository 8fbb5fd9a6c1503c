// A mixture of experts, of which each token uses a few.
#pragma once
#include "backend/block.h"
#include "backend/blocks/join.h"

namespace ingot {

struct ExpertsBlock {
  Tensor x;                  // in, out: [max_tokens, dim]
  NormArgs norm;             // weight [1, dim]
  bool follows_sum = false;  // as in AttentionBlock
  bool beside = false;       // the input is the fork, not x
  Tensor fork;               // [max_tokens, dim], the program's
  Weight w_router;           // [n_experts, dim]
  Tensor b_router;           // [1, n_experts] or empty
  RouteArgs route;
  // n_experts or route.n_own matrices [ffn, dim], [ffn, dim], [dim, ffn]. Without a gate, an expert is act(up).
  Weight w_gate, w_up, w_down;
  // [latent_dim, dim], [dim, latent_dim]: experts without a gate may read and write a projection of the stream; then
  // latent_dim takes the place of dim in their matrices. Otherwise empty.
  Weight w_latent, w_from_latent;
  Tensor b_gate, b_up, b_down;  // [n_experts or route.n_own, n_out] or empty
  Activation act = Activation::kSilu;
  int n_experts = 0, ffn_dim = 0, latent_dim = 0;
  bool scales_input = false;  // the weight of an expert multiplies its input, not its output
  // The shared expert, which every token uses; shared_dim 0: none. If it has a router, it runs as a mixture with one
  // expert.
  int shared_dim = 0;
  Weight shared_router;                        // [1, dim] or empty
  Weight shared_gate, shared_up, shared_down;  // [shared_dim, dim] twice, [dim, shared_dim]; no gate as for experts
  float shared_scale = 1;
  bool sums = false;                                                // as in Join
  NormArgs next_norm;                                               // as in Join
  Tensor normed;                                                    // as in AttentionBlock
  Tensor logits, ids, weights, gate, up, out, hidden, branch, sum, latent, latent_sum;  // scratch
  void lay_out(Buffers& buffers);
};
void run_block(const ExpertsBlock& b, Backend& backend);
// The arguments of the experts' products for this step's tokens, without input, norm and residual.
MoeArgs moe_args(const ExpertsBlock& b, Backend& backend);

}  // namespace ingot
