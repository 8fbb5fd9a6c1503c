// The norms at the beginning and the end of a part, as rows of the tensor table and as arguments of a block.
#pragma once
#include "backend/blocks/join.h"
#include "model/config/kind.h"

namespace ingot {

inline NormArgs norm_of(const Config& c) { return {.eps = c.norm_eps, .kind = c.norm()}; }
inline NormArgs post_norm_of(const Config& c) {
  return {.eps = c.post_norm_eps > 0 ? c.post_norm_eps : c.norm_eps, .kind = c.norm()};
}
// Whether the parts of a layer norm their inputs, and their outputs.
inline bool has_pre_norms(const Config& c, int layer) {
  return c.arch->pre_norms && !(c.arch->attention_norms_outputs && !keeps_states(c, layer));
}
inline bool has_post_norms(const Config& c, int layer) {
  return c.arch->post_norms || (c.arch->attention_norms_outputs && !keeps_states(c, layer));
}

inline Join join_of(const Config& c, int layer) {
  return {.post_norm = post_norm_of(c),
          .has_post_norm = has_post_norms(c, layer),
          .sum_norm = norm_of(c),
          .scale = c.residual_scale,
          .sums = c.share != nullptr};
}

// The numbers of attention that do not depend on how keys are made.
AttentionArgs attention_args(const Config& config, int layer);

// The order in GGUF files of the rows of q or k (RowOrder). If the two dialects rotate different pairs, the rows of the
// first and second half of the rotated part alternate. The rotated part of each `head` rows begins at `first`.
std::vector<int32_t> rope_order(const Config& config, int64_t n_rows, int head, int first);

inline bool has_ffn_norm(const Config& c, int layer) { return has_pre_norms(c, layer) && !c.arch->one_norm; }
inline bool has_layer_norms(const Config& c, int) { return c.arch->pre_norms && c.norm() == NormKind::kLayer; }
inline bool has_sum_norms(const Config& c, int) { return c.arch->sum_norms; }

using VectorMember = Tensor& (*)(void*);

// Before a mixer, after its output, and of the sum. The first files of BERT call weight and bias gamma and beta. The
// first layer of an encoder reads the normed embeddings. An EAGLE-3 head's mixer reads a pair that is already normed.
constexpr VectorRow mixer_norm(VectorMember member) {
  return {.gguf_name = "blk.{}.attn_norm.weight",
          .hf_name = "model.layers.{}.input_layernorm.weight|model.layers.{}.attn_norm.weight|"
                     "model.layers.{}.attention_layernorm.weight|model.layers.{}.operator_norm.weight|"
                     "backbone.layers.{}.norm.weight|model.layers.{}.temporal_pre_norm.weight|"
                     "model.layers.{}.attention_layer_norm.weight|"
                     "model.layers.{}.mamba_decoder.input_layernorm.weight",
          .member = member,
          .n = kModelDim,
          .when = [](const Config& c, int layer) {
            return has_pre_norms(c, layer) && !(c.arch->encoder && layer == 0) && !c.reads_pair;
          },
          .hf_kept = VectorRow::kLessOne};
}
constexpr VectorRow mixer_norm_bias(VectorMember member) {
  return {.gguf_name = "blk.{}.attn_norm.bias",
          .hf_name = "model.layers.{}.attn_norm.bias|model.layers.{}.input_layernorm.bias",
          .member = member,
          .n = kModelDim,
          .optional = kOptional,
          .when = has_layer_norms};
}
constexpr VectorRow mixer_post_norm(VectorMember member) {
  return {.gguf_name = "blk.{}.post_attention_norm.weight",
          .hf_name = "model.layers.{}.post_self_attn_layernorm.weight|model.layers.{}.post_attention_layernorm.weight|"
                     "model.layers.{}.feedforward_layer_norm.weight|model.layers.{}.post_operator_norm.weight",
          .member = member,
          .n = kModelDim,
          .when = has_post_norms,
          .hf_kept = VectorRow::kLessOne};
}
// In files of some architectures, the norm before the feed-forward has the name of other architectures' post-norm, or a
// name without a suffix.
constexpr VectorRow feed_forward_norm(VectorMember member) {
  return {.gguf_name = "blk.{}.ffn_norm.weight|blk.{}.post_attention_norm.weight|blk.{}.ffn_norm",
          .hf_name = "model.layers.{}.pre_feedforward_layernorm.weight|model.layers.{}.post_attention_layernorm.weight|"
                     "model.layers.{}.mlp_norm.weight|model.layers.{}.feedforward_layernorm.weight|"
                     "model.layers.{}.ffn_norm.weight|model.layers.{}.pre_ff_layernorm.weight|"
                     "model.layers.{}.channel_pre_norm.weight|model.layers.{}.feedforward_layer_norm.weight",
          .member = member,
          .n = kModelDim,
          .when = has_ffn_norm,
          .hf_kept = VectorRow::kLessOne};
}
constexpr VectorRow feed_forward_norm_bias(VectorMember member) {
  return {.gguf_name = "blk.{}.ffn_norm.bias",
          .hf_name = "model.layers.{}.mlp_norm.bias|model.layers.{}.post_attention_layernorm.bias",
          .member = member,
          .n = kModelDim,
          .optional = kOptional,
          .when = [](const Config& c, int layer) { return has_layer_norms(c, layer) && !c.arch->one_norm; }};
}
// Where the parts of a layer share one norm.
constexpr VectorRow shared_norm(VectorMember member) {
  VectorRow row = mixer_norm(member);
  row.when = [](const Config& c, int) { return c.arch->one_norm; };
  return row;
}

}  // namespace ingot
