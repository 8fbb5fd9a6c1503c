#include "model/decoder_program.h"

#include <utility>

#include "model/draft_head.h"

namespace ingot {
namespace {

constexpr float kLatentEps = 1e-6f;  // of the latents' norms; models may give their other norms another eps

enum : int { kMainRope, kLocalRope };

// The divisors of the rope's frequencies: a list of the config or a tensor of the file.
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

// Makes the blocks of one model, layer by layer.
class Builder {
 public:
  Builder(const Config& config, const Weights& weights, const DecoderCaches& caches)
      : c_(config), weights_(weights), caches_(caches) {}

  void add_layer(Program& program, int layer) {
    const LayerKind kind = c_.layer(layer);
    const LayerWeights none, &w = weights_.layers.empty() ? none : weights_.layers[static_cast<size_t>(layer)];
    if (kind.recurrent) {
      program.blocks.emplace_back(delta(w));
    } else if (c_.arch->latent_attention) {
      program.blocks.emplace_back(latent_attention(w, kind));
    } else {
      program.blocks.emplace_back(attention(w, kind));
    }
    if (kind.experts) {
      program.blocks.emplace_back(experts(w));
    } else {
      program.blocks.emplace_back(feed_forward(w));
    }
  }

  DenseLayersBlock dense_layers(int begin, int end) {
    DenseLayersBlock all;
    const LayerWeights none;
    for (int layer = begin; layer < end; ++layer) {
      const LayerWeights& w = weights_.layers.empty() ? none : weights_.layers[static_cast<size_t>(layer)];
      all.attention.push_back(attention(w, c_.layer(layer)));
      all.feed_forward.push_back(feed_forward(w));
    }
    return all;
  }

 private:
  NormArgs norm(const Tensor& weight) const { return {.weight = weight, .eps = c_.norm_eps, .kind = c_.arch->norm}; }

  Join join(const Tensor& post_norm) const {
    return {.post_norm = norm(post_norm), .has_post_norm = c_.arch->post_norms, .scale = c_.residual_scale};
  }

  AttentionArgs attention_args(const LayerWeights& w, const LayerKind& kind) {
    return {.layer = n_kv_layers_++,
            .n_heads = c_.n_heads,
            .n_kv_heads = c_.n_kv_heads,
            .head_dim = c_.head_dim,
            .scale = c_.score_scale(),
            .softcap = c_.attention_softcap,
            .window = kind.window,
            .causal = !c_.bidirectional,
            .sinks = w.sinks};
  }

  AttentionBlock attention(const LayerWeights& w, const LayerKind& kind) {
    AttentionBlock b{.norm = norm(w.attn_norm), .wq = w.wq, .wk = w.wk, .wv = w.wv, .bq = w.bq, .bk = w.bk, .bv = w.bv};
    b.q_norm = {.weight = w.q_norm, .eps = c_.norm_eps};
    b.k_norm = {.weight = w.k_norm, .eps = c_.norm_eps};
    b.rope_table = kind.rope == LayerRope::kNone ? kNoRope : kind.rope == LayerRope::kLocal ? kLocalRope : kMainRope;
    b.rope.layout = c_.rope_layout;
    b.attention = attention_args(w, kind);
    b.kv = caches_.kv;
    b.gate = w.attn_gate, b.has_gate = c_.arch->gates_attention;
    b.wo = w.wo, b.bo = w.bo;
    b.join = join(w.attn_post_norm);
    return b;
  }

  LatentAttentionBlock latent_attention(const LayerWeights& w, const LayerKind& kind) {
    const LatentConfig& l = c_.latent;
    LatentAttentionBlock b{
        .norm = norm(w.attn_norm), .wq_a = w.wq_a, .wq = w.wq, .wkv_a = w.wkv_a, .wk_b = w.wk_b, .wv_b = w.wv_b};
    b.q_a_norm = {.weight = w.q_a_norm, .eps = kLatentEps};
    b.kv_a_norm = {.weight = w.kv_a_norm, .eps = kLatentEps};
    b.wo = w.wo, b.bo = w.bo;
    b.q_rank = l.q_rank, b.kv_rank = l.kv_rank, b.nope_dim = l.nope_dim, b.rope_dim = l.rope_dim,
    b.value_dim = l.value_dim;
    b.rope_table = kMainRope;
    b.rope.layout = c_.rope_layout;
    b.attention = attention_args(w, kind);
    b.kv = caches_.kv;
    b.join = join(w.attn_post_norm);
    return b;
  }

  DeltaBlock delta(const LayerWeights& w) {
    const DeltaConfig& d = c_.delta;
    DeltaBlock b{.norm = norm(w.attn_norm),
                 .wq = w.wq,
                 .wk = w.wk,
                 .wv = w.wv,
                 .gate = w.attn_gate,
                 .w_beta = w.w_beta,
                 .w_alpha = w.w_alpha,
                 .conv = w.conv,
                 .decay = w.decay,
                 .dt = w.dt};
    b.value_norm = {.weight = w.value_norm, .eps = c_.norm_eps};
    b.wo = w.wo;
    b.n_key_heads = d.n_key_heads, b.n_heads = d.n_value_heads, b.key_dim = d.key_dim, b.value_dim = d.value_dim;
    b.tiled = d.tiled;
    b.states = caches_.states;
    b.layer = n_state_layers_++;
    b.join = join(w.attn_post_norm);
    return b;
  }

  FeedForwardBlock feed_forward(const LayerWeights& w) const {
    return {.norm = norm(w.ffn_norm),
            .w_gate = w.w_gate,
            .w_up = w.w_up,
            .w_down = w.w_down,
            .b_gate = w.b_gate,
            .b_up = w.b_up,
            .b_down = w.b_down,
            .act = c_.arch->activation,
            .ffn_dim = c_.ffn_dim,
            .join = join(w.ffn_post_norm)};
  }

  ExpertsBlock experts(const LayerWeights& w) const {
    const ExpertConfig& e = c_.experts;
    ExpertsBlock b{.norm = norm(w.ffn_norm), .w_router = w.router, .b_router = w.b_router};
    b.route = {.n_used = e.n_used,
               .scoring = e.scoring,
               .normalize = e.normalize,
               .scale = e.scale * c_.residual_scale,
               .bias = w.router_bias,
               .n_groups = e.n_groups,
               .n_groups_used = e.n_groups_used};
    b.w_gate = w.gate_exps, b.w_up = w.up_exps, b.w_down = w.down_exps;
    b.b_gate = w.b_gate_exps, b.b_up = w.b_up_exps, b.b_down = w.b_down_exps;
    b.act = c_.arch->activation;
    b.n_experts = e.n, b.ffn_dim = e.ffn_dim, b.shared_dim = e.shared_dim;
    b.shared_router = w.shared_router;
    b.shared_gate = w.shared_gate, b.shared_up = w.shared_up, b.shared_down = w.shared_down;
    b.shared_scale = c_.residual_scale;
    return b;
  }

  const Config& c_;
  const Weights& weights_;
  const DecoderCaches caches_;
  int n_kv_layers_ = 0, n_state_layers_ = 0;  // so far
};

bool is_dense(const Config& c) { return c.experts.n == 0 && c.n_recurrent_layers() == 0 && !c.arch->latent_attention; }

void add_ropes(Program& program, const Config& c, const Weights& weights, Backend* backend, int n_ctx) {
  std::vector<float> divisors;
  if (backend != nullptr) divisors = rope_divisors(c, weights.model, *backend, n_ctx);
  program.ropes.push_back({.rot_dim = c.rot_dim, .magnitude = c.rope_scaling.magnitude});
  if (backend != nullptr)
    program.ropes[kMainRope].frequencies = rope_frequencies(c.rot_dim, c.rope_theta, c.rope_scaling, divisors, n_ctx);
  if (c.local_theta > 0)
    program.ropes.push_back(
        {.rot_dim = c.rot_dim, .frequencies = rope_frequencies(c.rot_dim, c.local_theta, {}, {}, n_ctx)});
}

}  // namespace

Program decoder_layers(const Config& c, const Weights& weights, const DecoderCaches& caches, Backend* backend,
                       int n_ctx) {
  Program program;
  program.dim = c.dim;
  if (c.arch->latent_attention) program.n_latent_heads = c.n_heads;
  add_ropes(program, c, weights, backend, n_ctx);
  program.blocks.emplace_back(EmbedBlock{.table = weights.model.embedding, .scale = c.embedding_scale});
  Builder builder(c, weights, caches);
  const auto add_layers = [&](int begin, int end) {
    if (is_dense(c)) {
      program.blocks.emplace_back(builder.dense_layers(begin, end));
    } else {
      for (int layer = begin; layer < end; ++layer) builder.add_layer(program, layer);
    }
  };
  int begin = 0;
  if (c.draft_head && c.draft_head->is_eagle) {
    for (const int end : c.draft_head->kept_layers) {
      add_layers(std::exchange(begin, end), end);
      program.blocks.emplace_back(KeepBlock{.place = program.n_kept++});
    }
  }
  add_layers(begin, c.n_layers);
  return program;
}

HeadBlock head_block(const Config& c, const Weights& weights) {
  return {.norm = {.weight = weights.model.final_norm, .eps = c.norm_eps, .kind = c.arch->norm},
          .output = weights.model.output,
          .scale = c.logit_scale,
          .softcap = c.logit_softcap,
          .n_vocab = c.n_vocab};
}

StateShape state_shape(const Config& c, int n_slots) {
  const DeltaConfig& d = c.delta;
  if (c.n_recurrent_layers() == 0) return {};
  return {.n_slots = n_slots,
          .n_layers = c.n_recurrent_layers(),
          .n_channels = d.n_channels(),
          .conv_width = d.conv_width,
          .n_heads = d.n_value_heads,
          .key_dim = d.key_dim,
          .value_dim = d.value_dim};
}

size_t step_bytes(const Config& c, const StepLimits& limits, const Backend* backend) {
  Program program = decoder_layers(c, {}, {}, nullptr, limits.max_kv_len);
  program.blocks.emplace_back(head_block(c, {}));
  Buffers buffers(backend != nullptr ? backend->act_dtype() : DType::kF32, limits);
  program.lay_out(buffers);
  StepLimits all = buffers.limits();
  const size_t of_head = c.draft_head ? draft_bytes(c, &all, buffers.act()) : 0;
  return buffers.bytes() + of_head + (backend != nullptr ? backend->scratch_bytes(all) : 0);
}

}  // namespace ingot
