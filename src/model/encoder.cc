#include "model/encoder.h"

#include <cmath>

namespace ingot {

Encoder::Encoder(const EncoderConfig& config, const EncoderWeights& weights, Backend& backend, const StepLimits& limits)
    : config_(config), weights_(weights), backend_(backend) {
  const int n = limits.max_tokens, dim = config.dim;
  auto f32 = [&](int64_t rows, int64_t cols) { return backend.alloc(DType::kF32, rows, cols); };
  auto narrow = [&](int64_t cols) { return backend.alloc(backend.activation_dtype(), n, cols); };
  all_ = {.x = f32(n, dim), .normed = narrow(dim), .q = narrow(dim), .k = narrow(dim), .v = narrow(dim), .attended = narrow(dim),
          .hidden = narrow(config.ffn_dim)};
  const bool narrow_cache = backend.activation_dtype() != DType::kF32;
  kv_ = backend.make_kv({.n_layers = 1,
                         .n_kv_heads = config.n_heads,
                         .head_dim = config.head_dim,
                         .block_size = kBlockSize,
                         .n_blocks = n / kBlockSize + limits.max_seqs,
                         .dtype = narrow_cache ? DType::kF16 : DType::kF32});
  backend.reserve(limits);
  if (!config.arch->rope) return;
  auto frequencies = [&](float theta) {
    const std::vector<float> host = rope_frequencies(config.head_dim, theta, {}, {});
    const Tensor tensor = f32(1, static_cast<int64_t>(host.size()));
    backend.upload(tensor, host.data());
    return tensor;
  };
  inv_freq_ = frequencies(config.rope_theta);
  all_.angles = f32(n, config.head_dim);
  if (config.window == 0) return;
  local_inv_freq_ = frequencies(config.local_rope_theta);
  all_.local_angles = f32(n, config.head_dim);
}

Tensor Encoder::forward(const Batch& batch, std::span<const Rows> second_rows) {
  step_ = all_;
  for (Tensor* t : {&step_.x, &step_.normed, &step_.q, &step_.k, &step_.v, &step_.attended, &step_.hidden, &step_.angles, &step_.local_angles})
    if (*t) *t = t->slice_rows(0, batch.n_tokens());
  backend_.begin(batch);
  backend_.embed(step_.x, weights_.embedding, 1.0f);
  if (weights_.positions) backend_.add_positions(step_.x, weights_.positions);
  if (weights_.second_type)  // outside of what may be recorded: which rows differs from step to step
    for (const auto& [first, n] : second_rows) backend_.add_positions(step_.x.slice_rows(first, n), weights_.second_type);
  backend_.run([&] {
    backend_.norm(step_.x, step_.x, weights_.embed_norm);
    if (step_.angles) backend_.rope_angles(step_.angles, inv_freq_, 1.0f);
    if (step_.local_angles) backend_.rope_angles(step_.local_angles, local_inv_freq_, 1.0f);
    for (int i = 0; i < config_.n_layers; ++i) {
      const bool local = config_.is_local[i];
      attention_block(weights_.layers[i], local ? step_.local_angles : step_.angles, local ? config_.window : 0);
      ffn_block(weights_.layers[i]);
    }
    if (weights_.final_norm.weight) backend_.norm(step_.x, step_.x, weights_.final_norm);
  });
  return step_.x;
}

// What a block of a pre-norm model works on; of others the sum itself, which was normed at the end of the last block.
Tensor Encoder::normed_before(const NormArgs& norm) {
  if (!config_.arch->pre_norm || !norm.weight) return step_.x;
  backend_.norm(step_.normed, step_.x, norm);
  return step_.normed;
}

void Encoder::attention_block(const EncoderLayer& w, const Tensor& angles, int window) {
  const EncoderConfig& c = config_;
  backend_.qkv({.x = normed_before(w.attn_norm),
                .wq = &w.wq, .wk = &w.wk, .wv = &w.wv,
                .bq = w.bq, .bk = w.bk, .bv = w.bv,
                .rope = {.angles = angles},
                .n_heads = c.n_heads, .n_kv_heads = c.n_heads, .head_dim = c.head_dim,
                .kv = kv_.get(), .layer = 0,
                .q = step_.q, .k = step_.k, .v = step_.v});
  backend_.attention(step_.attended, step_.q, *kv_,
                     {.layer = 0, .n_heads = c.n_heads, .n_kv_heads = c.n_heads, .head_dim = c.head_dim,
                      .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)), .window = window, .causal = false});
  backend_.matmul_add(step_.x, step_.attended, w.wo, w.bo);
  if (!c.arch->pre_norm) backend_.norm(step_.x, step_.x, w.attn_norm);
}

void Encoder::ffn_block(const EncoderLayer& w) {
  const Tensor x = normed_before(w.ffn_norm);
  if (config_.arch->gated) {
    backend_.gate_up(step_.hidden, x, w.w_gate, w.w_up, w.b_gate, w.b_up, config_.activation);
  } else {
    backend_.matmul(step_.hidden, x, w.w_up, w.b_up);
    backend_.act(step_.hidden, config_.activation);
  }
  backend_.matmul_add(step_.x, step_.hidden, w.w_down, w.b_down);
  if (!config_.arch->pre_norm) backend_.norm(step_.x, step_.x, w.ffn_norm);
}

}  // namespace ingot
