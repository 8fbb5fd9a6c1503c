// The transformer, read top to bottom: embed, layers of attention and feed-forward, the last norm and the logits. Every
// activation it needs is allocated here once, for the largest step.
#pragma once
#include <memory>

#include "backend/backend.h"
#include "model/config.h"
#include "model/weights.h"

namespace ingot {

// What one layer hands to the next and to itself; rows are tokens of the batch.
struct Activations {
  Tensor x;              // [max_tokens, dim]: the residual stream
  Tensor normed;         // [max_tokens, dim]
  Tensor q;              // [max_tokens, q_dim]
  Tensor k, v;           // [max_tokens, kv_dim]
  Tensor attended;       // [max_tokens, q_dim]
  Tensor hidden;         // [max_tokens, ffn_dim]
  Tensor branch;         // [max_tokens, dim], f32: what a layer adds, where it is not added at once
  Tensor angles;         // [max_tokens, rot_dim]
  Tensor local_angles;   // the same for layers with a rope base of their own
  Tensor selected;       // [max_logits, dim]: the rows that get logits
  Tensor logits;         // [max_logits, n_vocab]

  // Of experts: rows are tokens, or tokens times the experts of each.
  Tensor router_logits;  // [max_tokens, n_experts]
  Tensor expert_ids, expert_weights;               // [max_tokens, n_used]
  Tensor expert_gate, expert_up, expert_out;       // [max_tokens * n_used, expert_dim | expert_dim | dim]

  // Of attention over latents. A query as it is projected, with what makes it; the latent; the heads' values.
  Tensor q_low;          // [max_tokens, q_rank]
  Tensor q_heads;        // [max_tokens, n_heads * (nope_dim + rope_dim)]
  Tensor latent;         // [max_tokens, kv_rank + rope_dim]
  Tensor values;         // [max_tokens, n_heads * value_dim]
  Tensor head_ids;       // [max_tokens, n_heads]: 0, 1, ...: each head is the expert of its own rows

  // Of gated attention and gated delta nets: the gate; the channels of the convolution; what a token learns and keeps.
  Tensor gate;           // [max_tokens, q_dim or all_values]
  Tensor channels;       // [max_tokens, n_channels]
  Tensor learnt;         // [max_tokens, all_values]
  Tensor beta, alpha;    // [max_tokens, n_value_heads]

  // The same, cut to the rows of a step.
  Activations first_rows(int n_tokens, int n_logits) const;
};

class Transformer {
 public:
  // `states` only for models with recurrent layers. The caches' layers are numbered by themselves.
  Transformer(const Config& config, const Weights& weights, Backend& backend, KvCache& kv, StateCache* states, const StepLimits& limits);

  // Enqueues the whole step. Afterwards logits() holds one row for each of batch.logit_rows: without an output matrix (of an
  // Embedder's model) the normed hidden states, [n_logits, dim].
  void forward(const Batch& batch);
  Tensor logits() const { return step_.logits; }  // [n_logits, n_vocab]

 private:
  void attention_block(int layer);
  void latent_attention_block(int layer);
  void delta_block(int layer);
  void attend(int layer);
  void ffn_block(int layer);
  void expert_block(int layer);
  void shared_expert(int layer);
  void add_branch(const Tensor& in, const Weight& w, const Tensor& bias, const Tensor& post_norm);
  Tensor normed(const Tensor& norm_weight);
  Tensor angles_of(const LayerKind& kind) const;
  void allocate_extras(int max_tokens);
  Tensor upload_frequencies(float theta, const RopeScaling& scaling, const std::vector<float>& divisors, int n_ctx);
  NormArgs norm_args(const Tensor& weight /* [1, dim] */) const;

  const Config& config_;
  const Weights& weights_;
  Backend& backend_;
  KvCache& kv_;
  StateCache* states_;
  std::vector<int> cache_layer_;  // [n_layers]: the number of a layer in its cache
  Activations all_;      // as allocated
  Activations step_;     // cut to the current step
  Tensor inv_freq_;        // [1, rot_dim / 2]
  Tensor local_inv_freq_;  // of layers with a base of their own; empty: there are none
};

// What a slot of the state cache holds of this model; no layers where none is recurrent.
StateShape state_shape(const Config& config, int n_slots);

// Bytes of the Activations for these limits, at four bytes a number.
size_t activation_bytes(const Config& config, const StepLimits& limits);

StepLimits step_limits(const Config& config, int max_tokens, int max_seqs, int max_logits, int max_kv_len);

}  // namespace ingot
