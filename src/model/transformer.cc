#include "model/transformer.h"

#include <algorithm>

namespace ingot {

namespace {

// What divides the rope's frequencies: a list of the config's or a tensor of the file.
std::vector<float> rope_divisors(const Config& c, const ModelWeights& w, Backend& backend, int n_ctx) {
  const bool is_long = n_ctx > c.rope_scaling.original_context;
  Tensor tensor = w.rope_divisors;
  if (c.rope_scaling.kind == RopeScalingKind::kLongRope) {
    const auto& listed = is_long ? c.rope_scaling.long_factors : c.rope_scaling.short_factors;
    if (!listed.empty()) return listed;
    tensor = is_long ? w.rope_long : w.rope_short;
  }
  std::vector<float> divisors(tensor ? static_cast<size_t>(tensor.cols) : 0);
  if (tensor) backend.download(divisors.data(), tensor);
  return divisors;
}

}  // namespace

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
          .hidden = narrow(n, std::max(config.ffn_dim, config.experts.shared_dim)),
          .angles = f32(n, config.rot_dim),
          .selected = f32(limits.max_logits, config.dim),
          .logits = f32(limits.max_logits, config.n_vocab)};
  if (config.arch->post_norms || config.residual_scale != 1) all_.branch = narrow(n, config.dim);
  if (config.local_theta > 0) all_.local_angles = f32(n, config.rot_dim);
  if (const ExpertConfig& e = config.experts; e.n > 0) {
    const int64_t rows = int64_t{n} * e.n_used, widest = std::max<int64_t>(e.ffn_dim, (e.shared_dim + e.n_used - 1) / e.n_used);
    all_.router_logits = f32(n, e.n);
    all_.expert_ids = backend.alloc(DType::kI32, n, e.n_used);
    all_.expert_weights = f32(n, e.n_used);
    all_.expert_gate = narrow(rows, widest);
    all_.expert_up = narrow(rows, widest);
    all_.expert_out = narrow(rows, config.dim);
  }
  backend.reserve(limits);
  inv_freq_ = upload_frequencies(config.rope_theta, config.rope_scaling,
                                 rope_divisors(config, weights.model, backend, limits.max_kv_len), limits.max_kv_len);
  if (config.local_theta > 0) local_inv_freq_ = upload_frequencies(config.local_theta, {}, {}, limits.max_kv_len);
}

Tensor Transformer::upload_frequencies(float theta, const RopeScaling& scaling, const std::vector<float>& divisors, int n_ctx) {
  const std::vector<float> host = rope_frequencies(config_.rot_dim, theta, scaling, divisors, n_ctx);
  const Tensor device = backend_.alloc(DType::kF32, 1, static_cast<int64_t>(host.size()));
  backend_.upload(device, host.data());
  return device;
}

void Transformer::forward(const Batch& batch) {
  step_ = all_.first_rows(batch.n_tokens(), batch.n_logits());
  backend_.begin(batch);
  backend_.run([&] {
    backend_.embed(step_.x, weights_.model.embedding, config_.embedding_scale);
    backend_.rope_angles(step_.angles, inv_freq_, config_.rope_scaling.magnitude);
    if (local_inv_freq_) backend_.rope_angles(step_.local_angles, local_inv_freq_, 1.0f);
    for (int layer = 0; layer < config_.n_layers; ++layer) {
      attention_block(layer);
      config_.layer(layer).experts ? expert_block(layer) : ffn_block(layer);
    }
    if (batch.n_logits() == 0) return;  // a chunk of a prompt, not its last
    backend_.gather_rows(step_.selected, step_.x);
    backend_.norm_matmul(step_.logits, step_.selected, norm_args(weights_.model.final_norm), weights_.model.output);
    if (config_.logit_scale != 1 || config_.logit_softcap > 0) backend_.scale(step_.logits, config_.logit_scale, config_.logit_softcap);
  });
}

NormArgs Transformer::norm_args(const Tensor& weight) const {
  return {.weight = weight, .eps = config_.norm_eps, .kind = config_.arch->norm};
}

// The residual stream as a block takes it.
Tensor Transformer::normed(const Tensor& norm_weight) {
  if (!norm_weight) return step_.x;
  backend_.norm(step_.normed, step_.x, norm_args(norm_weight));
  return step_.normed;
}

// The end of a block: the residual stream gets the projection of what it made.
void Transformer::add_branch(const Tensor& in, const Weight& w, const Tensor& bias, const Tensor& post_norm) {
  if (!post_norm && config_.residual_scale == 1) return backend_.matmul_add(step_.x, in, w, bias);
  backend_.matmul(step_.branch, in, w, bias);
  if (post_norm) backend_.norm(step_.branch, step_.branch, norm_args(post_norm));
  if (config_.residual_scale != 1) backend_.scale(step_.branch, config_.residual_scale, 0);
  backend_.add(step_.x, step_.branch);
}

void Transformer::attention_block(int layer) {
  const LayerWeights& w = weights_.layers[layer];
  const Config& c = config_;
  const LayerKind kind = c.layer(layer);
  const Tensor angles[] = {step_.angles, step_.local_angles, {}};
  backend_.qkv({.x = normed(w.attn_norm),
                .wq = &w.wq, .wk = &w.wk, .wv = &w.wv,
                .bq = w.bq, .bk = w.bk, .bv = w.bv,
                .q_norm = {.weight = w.q_norm, .eps = c.norm_eps},
                .k_norm = {.weight = w.k_norm, .eps = c.norm_eps},
                .rope = {.angles = angles[static_cast<int>(kind.rope)], .layout = c.rope_layout},
                .n_heads = c.n_heads, .n_kv_heads = c.n_kv_heads, .head_dim = c.head_dim,
                .kv = &kv_, .layer = layer,
                .q = step_.q, .k = step_.k, .v = step_.v});
  backend_.attention(step_.attended, step_.q, kv_,
                     {.layer = layer, .n_heads = c.n_heads, .n_kv_heads = c.n_kv_heads, .head_dim = c.head_dim,
                      .scale = c.score_scale(), .softcap = c.attention_softcap, .window = kind.window, .sinks = w.sinks});
  add_branch(step_.attended, w.wo, w.bo, w.attn_post_norm);
}

void Transformer::ffn_block(int layer) {
  const LayerWeights& w = weights_.layers[layer];
  const Tensor hidden = step_.hidden.view(step_.x.rows, config_.ffn_dim);
  backend_.gate_up(hidden, normed(w.ffn_norm), w.w_gate, w.w_up, w.b_gate, w.b_up, config_.arch->activation);
  add_branch(hidden, w.w_down, w.b_down, w.ffn_post_norm);
}

void Transformer::expert_block(int layer) {
  const LayerWeights& w = weights_.layers[layer];
  const ExpertConfig& e = config_.experts;
  const int64_t n = step_.x.rows, rows = n * e.n_used;
  backend_.moe({.residual = step_.x, .x = normed(w.ffn_norm),
                .w_router = &w.router, .b_router = w.b_router,
                .route = {.n_used = e.n_used, .scoring = e.scoring, .normalize = e.normalize,
                          .scale = e.scale * config_.residual_scale, .bias = w.router_bias,
                          .n_groups = e.n_groups, .n_groups_used = e.n_groups_used},
                .w_gate = &w.gate_exps, .w_up = &w.up_exps, .w_down = &w.down_exps,
                .b_gate = w.b_gate_exps, .b_up = w.b_up_exps, .b_down = w.b_down_exps, .act = config_.arch->activation,
                .logits = step_.router_logits, .ids = step_.expert_ids, .weights = step_.expert_weights,
                .gate = step_.expert_gate.view(rows, e.ffn_dim), .up = step_.expert_up.view(rows, e.ffn_dim),
                .out = step_.expert_out});
  if (w.shared_gate) shared_expert(layer);
}

// The expert that all tokens go to. One with a router of its own is a mixture of one.
void Transformer::shared_expert(int layer) {
  const LayerWeights& w = weights_.layers[layer];
  const int64_t n = step_.x.rows, dim = config_.experts.shared_dim;
  if (!w.shared_router) {
    const Tensor hidden = step_.hidden.view(n, dim);
    backend_.gate_up(hidden, step_.normed, w.shared_gate, w.shared_up, {}, {}, config_.arch->activation);
    return add_branch(hidden, w.shared_down, {}, {});
  }
  backend_.moe({.residual = step_.x, .x = step_.normed,
                .w_router = &w.shared_router,
                .route = {.scoring = Scoring::kSigmoid, .scale = config_.residual_scale},
                .w_gate = &w.shared_gate, .w_up = &w.shared_up, .w_down = &w.shared_down, .act = config_.arch->activation,
                .logits = step_.router_logits.view(n, 1), .ids = step_.expert_ids.view(n, 1), .weights = step_.expert_weights.view(n, 1),
                .gate = step_.expert_gate.view(n, dim), .up = step_.expert_up.view(n, dim), .out = step_.expert_out.view(n, config_.dim)});
}

Activations Activations::first_rows(int n_tokens, int n_logits) const {
  Activations step = *this;
  for (Tensor* t : {&step.x, &step.normed, &step.q, &step.k, &step.v, &step.attended, &step.hidden, &step.branch, &step.angles,
                    &step.local_angles, &step.router_logits, &step.expert_ids, &step.expert_weights})
    if (*t) *t = t->slice_rows(0, n_tokens);
  for (Tensor* t : {&step.expert_gate, &step.expert_up, &step.expert_out})
    if (*t) *t = t->slice_rows(0, n_tokens * (t->rows / x.rows));
  for (Tensor* t : {&step.selected, &step.logits}) *t = t->slice_rows(0, n_logits);
  return step;
}

size_t activation_bytes(const Config& c, const StepLimits& limits) {
  const ExpertConfig& e = c.experts;
  const size_t expert = e.n > 0 ? e.n + e.n_used * (2 + 2 * static_cast<size_t>(e.ffn_dim) + c.dim) : 0;
  const size_t branch = c.arch->post_norms || c.residual_scale != 1 ? c.dim : 0, local = c.local_theta > 0 ? c.rot_dim : 0;
  const size_t token = 2 * c.dim + 2 * c.q_dim() + 2 * c.kv_dim() + std::max(c.ffn_dim, e.shared_dim) + c.rot_dim + branch + local + expert;
  const size_t row = c.dim + c.n_vocab;
  return sizeof(float) * (limits.max_tokens * token + limits.max_logits * row);
}

StepLimits step_limits(const Config& c, int max_tokens, int max_seqs, int max_logits, int max_kv_len) {
  return {.max_tokens = max_tokens,
          .max_seqs = max_seqs,
          .max_logits = max_logits,
          .max_kv_len = max_kv_len,
          .max_width = std::max({c.dim, c.q_dim(), c.ffn_dim, c.experts.ffn_dim, c.experts.shared_dim}),
          .max_heads = c.n_heads,
          .head_dim = c.head_dim,
          .n_used = std::max(1, c.experts.n_used),
          .n_vocab = c.n_vocab};
}

}  // namespace ingot
