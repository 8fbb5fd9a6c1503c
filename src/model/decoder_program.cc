#include "model/decoder_program.h"

#include <algorithm>
#include <span>

#include "backend/blocks/delta_net.h"
#include "backend/blocks/keep.h"
#include "backend/blocks/latent_attention.h"
#include "backend/blocks/plain_layers.h"
#include "backend/blocks/remote.h"
#include "model/draft_head.h"
#include "model/shards.h"

namespace ingot {
namespace {

constexpr float kLatentEps = 1e-6f;  // of the latents' norms; other norms of the model may have another eps

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

NormArgs norm_args(const Config& c, const Tensor& weight, const Tensor& bias) {
  return {.weight = weight, .bias = bias, .eps = c.norm_eps, .kind = c.arch->norm};
}

// Whether layers may be one block. With several ranks they may not, because sums over the ranks run between kernels.
bool has_plain_attention(const Config& c) {
  return !c.share && !c.arch->encoder && c.n_recurrent_layers() == 0 && !c.arch->latent_attention;
}

// Makes the blocks of one device, in order. The device's caches have only the layers of these blocks.
class Builder {
 public:
  Builder(const Config& config, const Weights& weights, const DecoderCaches& caches)
      : c_(config), weights_(weights), caches_(caches) {}

  // Appends blocks [first, end) of the split's numbers.
  void add(std::vector<Block>& blocks, int first, int end) {
    const int head = 2 * c_.n_layers + 1;
    for (int i = first; i < end; ++i) {
      const int layer = (i - 1) / 2;
      if (i == 0) {
        blocks.emplace_back(embedding());
      } else if (i == head) {
        blocks.emplace_back(head_block(c_, weights_));
      } else if (i % 2 == 0) {
        blocks.push_back(of_feed_forward(layer));
      } else if (has_plain_attention(c_) && i + 1 < end) {
        const int n_layers = n_alike(layer, (std::min(end, head) - i) / 2);
        blocks.emplace_back(plain_layers(layer, n_layers));
        i += 2 * n_layers - 1;
      } else {
        blocks.push_back(of_attention(layer));
      }
    }
  }

 private:
  const LayerWeights& weights_of(int layer) const {
    static const LayerWeights none;
    return weights_.layers.empty() ? none : weights_.layers[static_cast<size_t>(layer)];
  }

  EmbedBlock embedding() const {
    const ModelWeights& m = weights_.model;
    EmbedBlock b{
        .table = m.embedding, .scale = c_.embedding_scale, .norm = norm_args(c_, m.embed_norm, m.embed_norm_bias)};
    if (m.positions) b.positions = m.positions.slice_rows(c_.first_position, m.positions.rows - c_.first_position);
    if (m.token_types.rows > 1) b.second_type = m.token_types.slice_rows(1, 1);
    return b;
  }

  Block of_attention(int layer) {
    const LayerKind kind = c_.layer(layer);
    const LayerWeights& w = weights_of(layer);
    if (kind.recurrent) return delta(w);
    if (c_.arch->latent_attention) return latent_attention(w, kind);
    return attention(w, kind);
  }

  Block of_feed_forward(int layer) const {
    if (c_.layer(layer).experts) return experts(weights_of(layer));
    return feed_forward(weights_of(layer));
  }

  // Of the n layers from `first` on, how many in a row are like the first: with experts, or without.
  int n_alike(int first, int n) const {
    int alike = 1;
    while (alike < n && c_.layer(first + alike).experts == c_.layer(first).experts) ++alike;
    return alike;
  }

  PlainLayersBlock plain_layers(int first, int n) {
    PlainLayersBlock layers;
    for (int layer = first; layer < first + n; ++layer) {
      const LayerWeights& w = weights_of(layer);
      layers.blocks.emplace_back(attention(w, c_.layer(layer)));
      layers.blocks.push_back(of_feed_forward(layer));
    }
    return layers;
  }

  NormArgs norm(const Tensor& weight, const Tensor& bias = {}) const { return norm_args(c_, weight, bias); }

  // norm_of_block: the norm before the block, or the norm of the sum after it.
  Join join(const Tensor& post_norm, const NormArgs& norm_of_block) const {
    return {.post_norm = norm(post_norm),
            .has_post_norm = c_.arch->post_norms,
            .sum_norm = c_.arch->sum_norms ? norm_of_block : NormArgs{},
            .scale = c_.residual_scale,
            .sums = c_.share != nullptr};
  }

  std::optional<HeadsOfRanks> heads_of_ranks() const {
    if (!c_.share || !c_.arch->norms_all_heads) return std::nullopt;
    const Share& share = *c_.share;
    return HeadsOfRanks{.q_dim = share.model.q_dim(),
                        .k_dim = share.model.kv_dim(),
                        .first_q = share.heads.first * c_.head_dim,
                        .first_k = share.kv_heads.first * c_.head_dim,
                        .adds_k = share.is_first_with_kv};
  }

  // Bidirectional models read a whole text in one step. Only the running layer needs its keys and values, so all layers
  // share the pages of one.
  AttentionArgs attention_args(const LayerWeights& w, const LayerKind& kind) {
    return {.layer = c_.bidirectional ? 0 : n_kv_layers_++,
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
    const NormArgs of_block = norm(w.attn_norm, w.attn_norm_bias);
    AttentionBlock b{.norm = c_.arch->sum_norms ? NormArgs{} : of_block,
                     .wq = w.wq,
                     .wk = w.wk,
                     .wv = w.wv,
                     .bq = w.bq,
                     .bk = w.bk,
                     .bv = w.bv};
    b.q_norm = {.weight = w.q_norm, .eps = c_.norm_eps};
    b.k_norm = {.weight = w.k_norm, .eps = c_.norm_eps};
    b.rope_table = kind.rope == LayerRope::kNone ? kNoRope : kind.rope == LayerRope::kLocal ? kLocalRope : kMainRope;
    b.rope.layout = c_.rope_layout;
    b.attention = attention_args(w, kind);
    b.kv = caches_.kv;
    b.gate = w.attn_gate, b.has_gate = c_.arch->gates_attention;
    b.wo = w.wo, b.bo = w.bo;
    b.join = join(w.attn_post_norm, of_block);
    b.heads_of_ranks = heads_of_ranks();
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
    b.join = join(w.attn_post_norm, {});
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
    b.join = join(w.attn_post_norm, {});
    return b;
  }

  FeedForwardBlock feed_forward(const LayerWeights& w) const {
    const NormArgs of_block = norm(w.ffn_norm, w.ffn_norm_bias);
    return {.norm = c_.arch->sum_norms ? NormArgs{} : of_block,
            .w_gate = w.w_gate,
            .w_up = w.w_up,
            .w_down = w.w_down,
            .b_gate = w.b_gate,
            .b_up = w.b_up,
            .b_down = w.b_down,
            .act = c_.activation.value_or(c_.arch->activation),
            .ffn_dim = c_.ffn_dim,
            .join = join(w.ffn_post_norm, of_block)};
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
    b.n_experts = e.n;
    if (c_.share && c_.share->experts.n < c_.share->model.experts.n) {
      b.n_experts = c_.share->model.experts.n;
      b.route.first_own = static_cast<int>(c_.share->experts.first), b.route.n_own = e.n;
    }
    b.w_gate = w.gate_exps, b.w_up = w.up_exps, b.w_down = w.down_exps;
    b.b_gate = w.b_gate_exps, b.b_up = w.b_up_exps, b.b_down = w.b_down_exps;
    b.act = c_.arch->activation;
    b.ffn_dim = e.ffn_dim, b.shared_dim = e.shared_dim;
    b.shared_router = w.shared_router;
    b.shared_gate = w.shared_gate, b.shared_up = w.shared_up, b.shared_down = w.shared_down;
    b.shared_scale = c_.residual_scale;
    b.sums = c_.share != nullptr;
    return b;
  }

  const Config& c_;
  const Weights& weights_;
  const DecoderCaches caches_;
  int n_kv_layers_ = 0, n_state_layers_ = 0;  // so far
};

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

// A list without blocks. Attention needs ropes and, over latents, the numbers of its heads.
Program empty_program(const Config& c, const Weights& weights, Backend* backend, int n_ctx, const Part& part) {
  Program program;
  program.dim = c.dim;
  if (n_kv_layers(c, part) == 0 || c.arch->learned_positions) return program;
  if (c.arch->latent_attention) program.n_latent_heads = c.n_heads;
  add_ropes(program, c, weights, backend, n_ctx);
  return program;
}

// With several ranks, the sum at the end of a block may compute the norm of the next block.
void move_norms_to_sums(std::span<Block> blocks) {
  NormArgs* next_norm = nullptr;
  for (Block& block : blocks) {
    if (const BlockPorts ports = block.ports(); ports.follows_sum != nullptr) {
      *ports.follows_sum = next_norm != nullptr && ports.norm->weight;
      if (*ports.follows_sum) *next_norm = *ports.norm;
    }
    next_norm = block.norm_after_sum();
  }
}

// Appends blocks [first, end) of the split's numbers. An EAGLE-3 head reads the stream behind some of the layers.
void add_blocks(Program& program, Builder& builder, const Config& c, int first, int end) {
  const size_t n_before = program.blocks.size();
  if (c.draft_head && c.draft_head->is_eagle) {
    for (const int n_layers : c.draft_head->kept_layers) {
      const int next = 2 * n_layers + 1;
      if (next <= first || next > end) continue;
      builder.add(program.blocks, first, next);
      program.blocks.emplace_back(KeepBlock{.place = program.n_kept++});
      first = next;
    }
  }
  builder.add(program.blocks, first, end);
  move_norms_to_sums(std::span(program.blocks).subspan(n_before));
}

}  // namespace

Program decoder_layers(const Config& c, const Weights& weights, const DecoderCaches& caches, Backend* backend,
                       int n_ctx) {
  Program program = empty_program(c, weights, backend, n_ctx, {});
  Builder builder(c, weights, caches);
  add_blocks(program, builder, c, 0, 2 * c.n_layers + 1);
  return program;
}

DevicePart device_part(const Config& c, const Weights& weights, const DecoderCaches& caches, Backend* backend,
                       int n_ctx, const Split& split, int device) {
  DevicePart part{.program = empty_program(c, weights, backend, n_ctx, split.part(device)), .runs = {}};
  std::vector<Block>& blocks = part.program.blocks;
  const auto n_blocks = [&] { return static_cast<int>(blocks.size()); };
  Builder builder(c, weights, caches);
  bool was_own = true;
  for (const Split::Run& run : split.runs()) {
    const bool is_own = run.device == device;
    const int first = n_blocks();
    if (is_own) add_blocks(part.program, builder, c, run.first, run.end);
    if (is_own) part.runs.push_back({first, n_blocks()});
    if (!is_own && was_own && device == split.head()) blocks.emplace_back(RemoteBlock{.reads_x = run.first > 0});
    was_own = is_own;
  }
  return part;
}

NormArgs final_norm(const Config& c, const Weights& weights) {
  return norm_args(c, weights.model.final_norm, weights.model.final_norm_bias);
}

HeadBlock head_block(const Config& c, const Weights& weights) {
  return {.norm = final_norm(c, weights),
          .output = weights.model.output,
          .scale = c.logit_scale,
          .softcap = c.logit_softcap,
          .n_vocab = c.n_vocab,
          .n_ranks = c.share ? c.share->n_ranks : 1,
          .rank_vocab = c.share ? c.share->rank_vocab : 0};
}

int n_kv_layers(const Config& c, const Part& part) {
  int n = 0;
  for (int layer = 0; layer < c.n_layers; ++layer) n += part.attention(layer) && !c.layer(layer).recurrent;
  return n;
}

StateShape state_shape(const Config& c, int n_slots, const Part& part) {
  const DeltaConfig& d = c.delta;
  int n_layers = 0;
  for (int layer = 0; layer < c.n_layers; ++layer) n_layers += part.attention(layer) && c.layer(layer).recurrent;
  if (n_layers == 0) return {};
  return {.n_slots = n_slots,
          .n_layers = n_layers,
          .n_channels = d.n_channels(),
          .conv_width = d.conv_width,
          .n_heads = d.n_value_heads,
          .key_dim = d.key_dim,
          .value_dim = d.value_dim};
}

size_t step_bytes(const Config& c, const StepLimits& limits, const Backend* backend, const Split& split, int device) {
  Program program = device_part(c, {}, {}, nullptr, limits.max_kv_len, split, device).program;
  Buffers buffers(backend != nullptr ? backend->act_dtype() : DType::kF32, limits);
  program.lay_out(buffers);
  StepLimits all = buffers.limits();
  const size_t of_head = c.draft_head ? draft_bytes(c, &all, buffers.act()) : 0;
  return buffers.bytes() + of_head + (backend != nullptr ? backend->scratch_bytes(all) : 0);
}

}  // namespace ingot
