#include "model/transformer.h"

#include <algorithm>

namespace ingot {

namespace {

constexpr float kLatentEps = 1e-6f;  // of latents' norms: models whose other norms have another say nothing of these

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

Transformer::Transformer(const Config& config, const Weights& weights, Backend& backend, KvCache& kv, StateCache* states,
                         const StepLimits& limits)
    : config_(config), weights_(weights), backend_(backend), kv_(kv), states_(states) {
  CHECK((config.n_recurrent_layers() > 0) == (states != nullptr));
  for (int i = 0, n_kv = 0; i < config.n_layers; ++i) {
    n_kv += !config.layer(i).recurrent;
    cache_layer_.push_back(config.layer(i).recurrent ? i - n_kv : n_kv - 1);
  }
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
          .logits = f32(limits.max_logits, weights.model.output ? config.n_vocab : config.dim)};
  allocate_extras(n);
  backend.reserve(limits);
  inv_freq_ = upload_frequencies(config.rope_theta, config.rope_scaling,
                                 rope_divisors(config, weights.model, backend, limits.max_kv_len), limits.max_kv_len);
  if (config.local_theta > 0) local_inv_freq_ = upload_frequencies(config.local_theta, {}, {}, limits.max_kv_len);
}

// What only some models need.
void Transformer::allocate_extras(int n) {
  const Config& c = config_;
  auto f32 = [&](int64_t rows, int64_t cols) { return backend_.alloc(DType::kF32, rows, cols); };
  auto narrow = [&](int64_t rows, int64_t cols) { return backend_.alloc(backend_.activation_dtype(), rows, cols); };
  if (c.arch->post_norms || c.residual_scale != 1) all_.branch = f32(n, c.dim);  // what a post-norm brings back to size may be too large for f16
  if (c.local_theta > 0) all_.local_angles = f32(n, c.rot_dim);
  if (const ExpertConfig& e = c.experts; e.n > 0) {
    const int64_t rows = int64_t{n} * e.n_used, widest = std::max<int64_t>(e.ffn_dim, (e.shared_dim + e.n_used - 1) / e.n_used);
    all_.router_logits = f32(n, e.n);
    all_.expert_ids = backend_.alloc(DType::kI32, n, e.n_used);
    all_.expert_weights = f32(n, e.n_used);
    all_.expert_gate = narrow(rows, widest);
    all_.expert_up = narrow(rows, widest);
    all_.expert_out = narrow(rows, c.dim);
  }
  if (const DeltaConfig& d = c.delta; d.n_value_heads > 0) {
    all_.channels = f32(n, d.n_channels());
    all_.learnt = f32(n, d.all_values());
    all_.beta = f32(n, d.n_value_heads);
    all_.alpha = f32(n, d.n_value_heads);
  }
  if (c.arch->gates_attention) all_.gate = narrow(n, std::max(c.q_dim(), c.delta.all_values()));
  if (const LatentConfig& l = c.latent; l.kv_rank > 0) {
    if (l.q_rank > 0) all_.q_low = narrow(n, l.q_rank);
    all_.q_heads = narrow(n, int64_t{c.n_heads} * (l.nope_dim + l.rope_dim));
    all_.latent = narrow(n, c.head_dim);
    all_.values = narrow(n, int64_t{c.n_heads} * l.value_dim);
    std::vector<int32_t> ids(static_cast<size_t>(n) * c.n_heads);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i) % c.n_heads;
    all_.head_ids = backend_.alloc(DType::kI32, n, c.n_heads);
    backend_.upload(all_.head_ids, ids.data());
  }
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
      if (config_.layer(layer).recurrent) {
        delta_block(layer);
      } else {
        config_.arch->latent_attention ? latent_attention_block(layer) : attention_block(layer);
      }
      config_.layer(layer).experts ? expert_block(layer) : ffn_block(layer);
    }
    if (batch.n_logits() == 0) return;  // a chunk of a prompt, not its last
    backend_.gather_rows(step_.selected, step_.x);
    if (!weights_.model.output) return backend_.norm(step_.logits, step_.selected, norm_args(weights_.model.final_norm));
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
  const Tensor x = normed(w.attn_norm);
  backend_.qkv({.x = x,
                .wq = &w.wq, .wk = &w.wk, .wv = &w.wv,
                .bq = w.bq, .bk = w.bk, .bv = w.bv,
                .q_norm = {.weight = w.q_norm, .eps = c.norm_eps},
                .k_norm = {.weight = w.k_norm, .eps = c.norm_eps},
                .rope = {.angles = angles_of(c.layer(layer)), .layout = c.rope_layout},
                .n_heads = c.n_heads, .n_kv_heads = c.n_kv_heads, .head_dim = c.head_dim,
                .kv = &kv_, .layer = cache_layer_[layer],
                .q = step_.q, .k = step_.k, .v = step_.v});
  attend(layer);
  if (w.attn_gate) {
    const Tensor gate = step_.gate.view(x.rows, c.q_dim());
    backend_.matmul(gate, x, w.attn_gate);
    backend_.gate(step_.attended, gate);
  }
  add_branch(step_.attended, w.wo, w.bo, w.attn_post_norm);
}

void Transformer::attend(int layer) {
  const Config& c = config_;
  backend_.attention(step_.attended, step_.q, kv_,
                     {.layer = cache_layer_[layer], .n_heads = c.n_heads, .n_kv_heads = c.n_kv_heads, .head_dim = c.head_dim,
                      .scale = c.score_scale(), .softcap = c.attention_softcap, .window = c.layer(layer).window,
                      .causal = !c.arch->bidirectional, .sinks = weights_.layers[layer].sinks});
}

Tensor Transformer::angles_of(const LayerKind& kind) const {
  if (kind.rope == LayerRope::kNone) return {};
  return kind.rope == LayerRope::kLocal ? step_.local_angles : step_.angles;
}

// Keys and values are never made: a head's query goes through its key projection the other way round, and attends to latents;
// what it gathers of these goes through its value projection (arXiv:2405.04434, 2.1.2). Latents lie as [rope_dim | kv_rank].
void Transformer::latent_attention_block(int layer) {
  const LayerWeights& w = weights_.layers[layer];
  const LatentConfig& l = config_.latent;
  const int64_t n = step_.x.rows, rows = n * config_.n_heads, query_dim = l.nope_dim + l.rope_dim;
  const RopeArgs rope = {.angles = step_.angles, .layout = config_.rope_layout};
  const Tensor x = normed(w.attn_norm);
  Tensor query_from = x;
  if (w.wq_a) {
    backend_.matmul(step_.q_low, x, w.wq_a);
    backend_.norm(step_.q_low, step_.q_low, {.weight = w.q_a_norm, .eps = kLatentEps});
    query_from = step_.q_low;
  }
  backend_.matmul(step_.q_heads, query_from, w.wq);
  const Tensor heads = step_.q_heads.reshape(rows, query_dim), q = step_.q.reshape(rows, config_.head_dim);
  backend_.copy(q.slice_cols(0, l.rope_dim), heads.slice_cols(l.nope_dim, l.rope_dim));
  backend_.moe_matmul(q.slice_cols(l.rope_dim, l.kv_rank), heads.slice_cols(0, l.nope_dim), w.wk_b, step_.head_ids, {});
  backend_.rope(step_.q, config_.n_heads, rope);

  backend_.matmul(step_.latent, x, w.wkv_a);
  backend_.copy(step_.k.slice_cols(0, l.rope_dim), step_.latent.slice_cols(l.kv_rank, l.rope_dim));
  backend_.norm(step_.k.slice_cols(l.rope_dim, l.kv_rank), step_.latent.slice_cols(0, l.kv_rank),
                {.weight = w.kv_a_norm, .eps = kLatentEps});
  backend_.rope(step_.k, 1, rope);
  backend_.kv_write(kv_, cache_layer_[layer], step_.k, step_.k);

  attend(layer);
  const Tensor gathered = step_.attended.reshape(rows, config_.head_dim).slice_cols(l.rope_dim, l.kv_rank);
  backend_.moe_matmul(step_.values.reshape(rows, l.value_dim), gathered, w.wv_b, step_.head_ids, {});
  add_branch(step_.values, w.wo, w.bo, w.attn_post_norm);
}

// In place of attention a matrix for each head, which every token changes (arXiv:2412.06464): q, k and v pass through a short
// convolution, and what q reads is normed and gated.
void Transformer::delta_block(int layer) {
  const LayerWeights& w = weights_.layers[layer];
  const DeltaConfig& d = config_.delta;
  const Tensor x = normed(w.attn_norm), gate = step_.gate.view(x.rows, d.all_values());
  const int keys = d.all_keys(), state_layer = cache_layer_[layer];
  backend_.matmul(step_.channels.slice_cols(0, keys), x, w.wq);
  backend_.matmul(step_.channels.slice_cols(keys, keys), x, w.wk);
  backend_.matmul(step_.channels.slice_cols(2 * keys, d.all_values()), x, w.wv);
  backend_.matmul(gate, x, w.attn_gate);
  backend_.matmul(step_.beta, x, w.w_beta);
  backend_.matmul(step_.alpha, x, w.w_alpha);
  backend_.short_conv(step_.channels, w.conv, *states_, state_layer);
  backend_.delta_rule({.y = step_.learnt, .qkv = step_.channels, .beta = step_.beta, .alpha = step_.alpha, .decay = w.decay, .dt = w.dt,
                       .n_key_heads = d.n_key_heads, .tiled = d.tiled, .states = states_, .layer = state_layer});
  const Tensor heads = step_.learnt.reshape(x.rows * d.n_value_heads, d.value_dim);
  backend_.norm(heads, heads, {.weight = w.value_norm, .eps = config_.norm_eps});
  backend_.act_mul(step_.learnt, gate, step_.learnt, Activation::kSilu);
  add_branch(step_.learnt, w.wo, {}, w.attn_post_norm);
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
                    &step.local_angles, &step.router_logits, &step.expert_ids, &step.expert_weights, &step.q_low, &step.q_heads,
                    &step.latent, &step.values, &step.head_ids, &step.gate, &step.channels, &step.learnt, &step.beta, &step.alpha})
    if (*t) *t = t->slice_rows(0, n_tokens);
  for (Tensor* t : {&step.expert_gate, &step.expert_up, &step.expert_out})
    if (*t) *t = t->slice_rows(0, n_tokens * (t->rows / x.rows));
  for (Tensor* t : {&step.selected, &step.logits}) *t = t->slice_rows(0, n_logits);
  return step;
}

StateShape state_shape(const Config& c, int n_slots) {
  const DeltaConfig& d = c.delta;
  if (c.n_recurrent_layers() == 0) return {};
  return {.n_slots = n_slots, .n_layers = c.n_recurrent_layers(), .n_channels = d.n_channels(), .conv_width = d.conv_width,
          .n_heads = d.n_value_heads, .key_dim = d.key_dim, .value_dim = d.value_dim};
}

size_t activation_bytes(const Config& c, const StepLimits& limits) {
  const ExpertConfig& e = c.experts;
  const size_t expert = e.n > 0 ? e.n + e.n_used * (2 + 2 * static_cast<size_t>(e.ffn_dim) + c.dim) : 0;
  const LatentConfig& l = c.latent;
  const size_t latent = l.kv_rank > 0 ? l.q_rank + c.n_heads * static_cast<size_t>(l.nope_dim + l.rope_dim + l.value_dim + 1) + c.head_dim : 0;
  const DeltaConfig& d = c.delta;
  const size_t delta = d.n_value_heads > 0 ? d.n_channels() + d.all_values() + 2 * d.n_value_heads : 0;
  const size_t gate = c.arch->gates_attention ? std::max(c.q_dim(), d.all_values()) : 0;
  const size_t branch = c.arch->post_norms || c.residual_scale != 1 ? c.dim : 0, local = c.local_theta > 0 ? c.rot_dim : 0;
  const size_t token = 2 * c.dim + 2 * c.q_dim() + 2 * c.kv_dim() + std::max(c.ffn_dim, e.shared_dim) + c.rot_dim + branch + local + expert + latent + delta + gate;
  const size_t row = c.dim + c.n_vocab;
  return sizeof(float) * (limits.max_tokens * token + limits.max_logits * row);
}

StepLimits step_limits(const Config& c, int max_tokens, int max_seqs, int max_logits, int max_kv_len) {
  const ExpertConfig& e = c.experts;
  const LatentConfig& l = c.latent;
  const int64_t expert_rows = int64_t{max_tokens} * e.n_used, head_rows = l.kv_rank > 0 ? int64_t{max_tokens} * c.n_heads : 0;
  return {.max_tokens = max_tokens,
          .max_seqs = max_seqs,
          .max_logits = max_logits,
          .max_kv_len = max_kv_len,
          .max_width = std::max({c.dim, c.q_dim(), c.ffn_dim, c.experts.ffn_dim, c.experts.shared_dim, c.attended_dim(), c.delta.n_channels()}),
          .max_heads = c.n_heads,
          .head_dim = c.head_dim,
          .max_expert_rows = std::max(expert_rows, head_rows),
          .max_expert_floats = std::max(expert_rows * (std::max({c.dim, e.ffn_dim, e.shared_dim}) + 64),
                                        head_rows * (std::max({l.kv_rank, l.nope_dim, l.value_dim}) + 64)),
          .n_vocab = c.n_vocab};
}

}  // namespace ingot
