#include "model/transformer.h"

#include <algorithm>
#include <cmath>

namespace ingot {

Transformer::Transformer(const Config& config, const Weights& weights, Backend& backend, KvCache& kv,
                         const StepLimits& limits)
    : config_(config), weights_(weights), backend_(backend), kv_(kv) {
  auto f32 = [&](int64_t n, int64_t cols) { return backend.alloc(DType::kF32, n, cols); };
  auto narrow = [&](int64_t n, int64_t cols) { return backend.alloc(backend.activation_dtype(), n, cols); };
  const int n = limits.max_tokens;
  all_ = {.x = f32(n, config.dim),
          .normed = narrow(n, config.dim),
          .q = narrow(n, config.q_dim()),
          .k = narrow(n, config.kv_dim()),
          .v = narrow(n, config.kv_dim()),
          .attended = narrow(n, config.q_dim()),
          .hidden = narrow(n, config.ffn_dim),
          .angles = f32(n, config.rot_dim),
          .selected = f32(limits.max_logits, config.dim),
          .logits = f32(limits.max_logits, config.n_vocab)};
  backend.reserve(limits);

  std::vector<float> divisors;
  if (const Tensor& t = weights.model.rope_divisors) {
    divisors.resize(t.cols);
    backend.download(divisors.data(), t);
  }
  const std::vector<float> inv_freq = rope_frequencies(config.rot_dim, config.rope_theta, config.rope_scaling, divisors);
  inv_freq_ = f32(1, static_cast<int64_t>(inv_freq.size()));
  backend.upload(inv_freq_, inv_freq.data());
}

void Transformer::forward(const Batch& batch) {
  step_ = all_.first_rows(batch.n_tokens(), batch.n_logits());
  backend_.begin(batch);
  backend_.run([&] {
    backend_.embed(step_.x, weights_.model.embedding, 1.0f);
    backend_.rope_angles(step_.angles, inv_freq_, config_.rope_scaling.magnitude);
    for (int layer = 0; layer < config_.n_layers; ++layer) {
      attention_block(layer);
      ffn_block(layer);
    }
    if (batch.n_logits() == 0) return;  // a chunk of a prompt, not its last
    backend_.gather_rows(step_.selected, step_.x);
    backend_.norm_matmul(step_.logits, step_.selected, norm_args(weights_.model.final_norm), weights_.model.output);
  });
}

NormArgs Transformer::norm_args(const Tensor& weight) const {
  return {.weight = weight, .eps = config_.norm_eps, .kind = config_.arch->norm};
}

void Transformer::attention_block(int layer) {
  const LayerWeights& w = weights_.layers[layer];
  const Config& c = config_;
  backend_.norm(step_.normed, step_.x, norm_args(w.attn_norm));
  backend_.qkv({.x = step_.normed,
                .wq = &w.wq, .wk = &w.wk, .wv = &w.wv,
                .bq = w.bq, .bk = w.bk, .bv = w.bv,
                .q_norm = {.weight = w.q_norm, .eps = c.norm_eps},
                .k_norm = {.weight = w.k_norm, .eps = c.norm_eps},
                .rope = {.angles = step_.angles, .layout = c.rope_layout},
                .n_heads = c.n_heads, .n_kv_heads = c.n_kv_heads, .head_dim = c.head_dim,
                .kv = &kv_, .layer = layer,
                .q = step_.q, .k = step_.k, .v = step_.v});
  backend_.attention(step_.attended, step_.q, kv_,
                     {.layer = layer, .n_heads = c.n_heads, .n_kv_heads = c.n_kv_heads, .head_dim = c.head_dim,
                      .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)), .window = c.sliding_window});
  backend_.matmul_add(step_.x, step_.attended, w.wo, w.bo);
}

void Transformer::ffn_block(int layer) {
  const LayerWeights& w = weights_.layers[layer];
  backend_.norm(step_.normed, step_.x, norm_args(w.ffn_norm));
  backend_.gate_up(step_.hidden, step_.normed, w.w_gate, w.w_up, w.b_gate, w.b_up, config_.arch->activation);
  backend_.matmul_add(step_.x, step_.hidden, w.w_down, w.b_down);
}

Activations Activations::first_rows(int n_tokens, int n_logits) const {
  Activations step = *this;
  for (Tensor* t : {&step.x, &step.normed, &step.q, &step.k, &step.v, &step.attended, &step.hidden, &step.angles})
    *t = t->slice_rows(0, n_tokens);
  for (Tensor* t : {&step.selected, &step.logits}) *t = t->slice_rows(0, n_logits);
  return step;
}

size_t activation_bytes(const Config& c, const StepLimits& limits) {
  const size_t token = 2 * c.dim + 2 * c.q_dim() + 2 * c.kv_dim() + c.ffn_dim + c.rot_dim;
  const size_t row = c.dim + c.n_vocab;
  return sizeof(float) * (limits.max_tokens * token + limits.max_logits * row);
}

StepLimits step_limits(const Config& c, int max_tokens, int max_seqs, int max_logits, int max_kv_len) {
  return {.max_tokens = max_tokens,
          .max_seqs = max_seqs,
          .max_logits = max_logits,
          .max_kv_len = max_kv_len,
          .max_width = std::max({c.dim, c.q_dim(), c.ffn_dim}),
          .max_heads = c.n_heads,
          .head_dim = c.head_dim,
          .n_vocab = c.n_vocab};
}

}  // namespace ingot
