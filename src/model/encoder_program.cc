#include "model/encoder_program.h"

#include <cmath>

namespace ingot {
namespace {

enum : int { kGlobalRope, kLocalRope };

AttentionBlock attention(const EncoderConfig& c, const EncoderLayer& w, KvCache* kv, bool is_local) {
  AttentionBlock b{
      .wq = w.wq, .wk = w.wk, .wv = w.wv, .bq = w.bq, .bk = w.bk, .bv = w.bv, .kv = kv, .wo = w.wo, .bo = w.bo};
  (c.arch->pre_norm ? b.norm : b.join.sum_norm) = w.attn_norm;
  if (c.arch->rope) b.rope_table = is_local && c.window > 0 ? kLocalRope : kGlobalRope;
  b.attention = {.n_heads = c.n_heads,
                 .n_kv_heads = c.n_heads,
                 .head_dim = c.head_dim,
                 .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                 .window = is_local ? c.window : 0,
                 .causal = false};
  return b;
}

FeedForwardBlock feed_forward(const EncoderConfig& c, const EncoderLayer& w) {
  FeedForwardBlock b{.w_gate = w.w_gate,
                     .w_up = w.w_up,
                     .w_down = w.w_down,
                     .b_gate = w.b_gate,
                     .b_up = w.b_up,
                     .b_down = w.b_down,
                     .act = c.activation,
                     .ffn_dim = c.ffn_dim};
  (c.arch->pre_norm ? b.norm : b.join.sum_norm) = w.ffn_norm;
  return b;
}

}  // namespace

Program encoder_layers(const EncoderConfig& c, const EncoderWeights& weights, KvCache* kv) {
  Program program;
  program.dim = c.dim;
  const auto add_rope = [&](float theta) {
    program.ropes.push_back({.rot_dim = c.head_dim, .frequencies = rope_frequencies(c.head_dim, theta, {}, {})});
  };
  if (c.arch->rope) add_rope(c.rope_theta);
  if (c.arch->rope && c.window > 0) add_rope(c.local_rope_theta);
  program.blocks.emplace_back(EmbedBlock{.table = weights.embedding,
                                         .positions = weights.positions,
                                         .second_type = weights.second_type,
                                         .norm = weights.embed_norm});
  for (int i = 0; i < c.n_layers; ++i) {
    const EncoderLayer& w = weights.layers[static_cast<size_t>(i)];
    program.blocks.emplace_back(attention(c, w, kv, c.is_local[static_cast<size_t>(i)]));
    program.blocks.emplace_back(feed_forward(c, w));
  }
  return program;
}

}  // namespace ingot
