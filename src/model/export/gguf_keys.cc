#include "model/export/gguf_keys.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "io/gguf/tokenizer_writer.h"
#include "io/huggingface/config.h"
#include "io/huggingface/tokenizer.h"
#include "model/config/gguf_writer.h"
#include "model/config/kind.h"
#include "model/export/head_export.h"
#include "model/vectors/classifier.h"

namespace ingot {
namespace {

void write_yarn(const Checkpoint& checkpoint, const Config& c, const GgufKeyWriter& keys) {
  const RopeScaling& scaling = c.rope_scaling;
  if (scaling.truncate != c.arch->yarn_truncates)
    throw Error(
        "{}: GGUF cannot store 'truncate': {} of the YaRN rope scaling: run the directory without converting it",
        printable(checkpoint.path()), scaling.truncate);
  const RopeScaling usual;
  keys.count("rope.scaling.original_context_length", scaling.original_context);
  if (scaling.beta_fast != usual.beta_fast) keys.set("rope.scaling.yarn_beta_fast", scaling.beta_fast);
  if (scaling.beta_slow != usual.beta_slow) keys.set("rope.scaling.yarn_beta_slow", scaling.beta_slow);
  // Readers multiply attn_factor with YaRN's own magnitude, except in models that stretch the scores.
  const float own = scaling.log_stretch > 0 ? 1.0f : 1.0f + 0.1f * std::log(std::max(1.0f, scaling.factor));
  const float extra = scaling.magnitude / own;
  if (std::fabs(extra - 1.0f) > 1e-6f) keys.set("rope.scaling.attn_factor", extra);
}

// Llama 3's scaling is written as a tensor, rope_freqs (gguf_export.cc).
void write_rope(const Checkpoint& checkpoint, const Config& c, const GgufKeyWriter& keys) {
  if (c.arch->learned_positions || kv_mixer(*c.arch) == nullptr) return;
  keys.count("rope.dimension_count", c.rot_dim);
  keys.set("rope.freq_base", c.rope_theta);
  const RopeScaling& scaling = c.rope_scaling;
  if (c.local_theta > 0) keys.set("rope.freq_base_swa", c.local_theta);
  if (scaling.kind == RopeScalingKind::kNone || scaling.kind == RopeScalingKind::kLlama3) return;
  if (scaling.kind == RopeScalingKind::kDynamic)
    throw Error("{}: GGUF cannot store dynamic rope scaling: run the directory without converting it",
                printable(checkpoint.path()));
  if (scaling.kind == RopeScalingKind::kLongRope) {  // LongRoPE's factors are tensors too
    keys.set("rope.scaling.type", std::string("longrope"));
    keys.count("rope.scaling.original_context_length", scaling.original_context);
    return keys.set("rope.scaling.attn_factor", scaling.magnitude);
  }
  const bool is_yarn = scaling.kind == RopeScalingKind::kYarn;
  keys.set("rope.scaling.type", std::string(is_yarn ? "yarn" : "linear"));
  keys.set("rope.scaling.factor", scaling.factor);
  if (is_yarn) write_yarn(checkpoint, c, keys);
}

// In encoders, the first of every n layers is global. Returns n.
int global_period(const Checkpoint& checkpoint, const Config& c) {
  for (int n = 1; n <= c.n_layers; ++n) {
    bool fits = true;
    for (int i = 0; i < c.n_layers; ++i) fits = fits && (c.layer(i).window > 0) == c.arch->has_window(i, n);
    if (fits) return n;
  }
  throw Error(
      "{}: GGUF cannot store which layers of this model have an attention window: run the directory without converting "
      "it",
      printable(checkpoint.path()));
}

// Writes the differences between layers, if readers do not assume them.
void write_layers(const Checkpoint& checkpoint, const Config& c, const GgufKeyWriter& keys) {
  const Arch& arch = *c.arch;
  if (arch.encoder) {
    if (c.sliding_window > 0) keys.count("attention.sliding_window_pattern", global_period(checkpoint, c));
    return;
  }
  std::vector<bool> windowed;
  bool as_usual = true;
  int n_dense = 0;
  if (c.bidirectional && !arch.bidirectional && c.sliding_window > 0)
    throw Error("{}: GGUF cannot store the window of bidirectional attention: run the directory without converting it",
                printable(checkpoint.path()));
  for (int i = 0; i < c.n_layers; ++i) {
    const LayerConfig layer = c.layer(i);
    windowed.push_back(layer.window > 0);
    as_usual = as_usual && windowed[i] == arch.has_window(i, arch.window_period);
    if (c.experts.n > 0 && !layer.has(kExpertsPart) && n_dense++ != i)
      throw Error(
          "{}: layer {} has no experts, but a layer before it has, which GGUF cannot store: run the directory without "
          "converting it",
          printable(checkpoint.path()), i);
    const bool without_rope = (arch.no_rope_period > 0 && (i + 1) % arch.no_rope_period == 0) ||
                              (arch.rope_needs_window && c.sliding_window > 0 && !windowed[i]);
    if ((layer.rope == LayerRope::kNone) != without_rope)
      throw Error("{}: GGUF cannot store that layer {} has {} rope: run the directory without converting it",
                  printable(checkpoint.path()), i, without_rope ? "a" : "no");
  }
  const bool lists_windows = arch.rope_needs_window || arch.local_theta == kSameTheta;  // like llama.cpp's converter
  if (c.sliding_window > 0 && (lists_windows || !as_usual)) keys.set("attention.sliding_window_pattern", windowed);
  if (c.experts.n > 0) keys.count("leading_dense_block_count", n_dense);
}

void write_experts(const ExpertConfig& e, const GgufKeyWriter& keys) {
  if (e.n == 0) return;
  keys.count("expert_count", e.n);
  keys.count("expert_used_count", e.n_used);
  keys.count("expert_feed_forward_length", e.ffn_dim);
  if (e.shared_dim > 0) keys.count("expert_shared_feed_forward_length", e.shared_dim);
  if (e.shared_dim > 0 && e.shared_dim % e.ffn_dim == 0) keys.count("expert_shared_count", e.shared_dim / e.ffn_dim);
  keys.set("expert_weights_norm", e.normalize);
  keys.set("expert_weights_scale", e.scale);
  keys.count("expert_gating_func", e.scoring == Scoring::kSigmoid ? 2 : 1);
  if (e.n_groups == 1) return;
  keys.count("expert_group_count", e.n_groups);
  keys.count("expert_group_used_count", e.n_groups_used);
}

void write_scales(const Config& c, const GgufKeyWriter& keys) {
  const auto unless = [&](const char* key, float value, float usual) {
    if (std::fabs(value - usual) > 1e-6f * usual) keys.set(key, value);
  };
  if (!c.arch->scales_embedding) unless("embedding_scale", c.embedding_scale, 1);
  unless("residual_scale", c.residual_scale, 1);
  const bool is_granite = std::string_view(c.arch->gguf_name).starts_with("granite");  // llama.cpp needs the key
  unless("logit_scale", 1 / c.logit_scale, is_granite ? 0 : 1);
  unless("attention.scale", c.score_scale(), c.default_score_scale());
  if (c.attention_softcap > 0) keys.set("attn_logit_softcapping", c.attention_softcap);
  if (c.logit_softcap > 0) keys.set("final_logit_softcapping", c.logit_softcap);
}

void write_kv_heads(const Config& c, const GgufKeyWriter& keys) {
  if (!c.arch->lists_kv_heads) return keys.count("attention.head_count_kv", c.n_kv_heads);
  std::vector<uint32_t> heads;
  for (int i = 0; i < c.n_layers; ++i) heads.push_back(c.layer(i).has(kAttentionPart) ? c.n_kv_heads : 0);
  keys.set("attention.head_count_kv", heads);
}

void write_sizes(const Config& c, const GgufKeyWriter& keys) {
  if (std::ranges::any_of(c.layers, [](const LayerConfig& layer) { return layer.heads.has_value(); }))
    throw Error("layers with different heads cannot be written as GGUF yet: run the directory without converting it");
  keys.count("block_count", c.n_layers);
  keys.count("context_length", c.n_ctx_train);
  keys.count("embedding_length", c.dim);
  const bool has_attention = kv_mixer(*c.arch) != nullptr;
  keys.count("feed_forward_length", arch_has(*c.arch, kFeedForwardPart) ? c.ffn_dim : 0);
  keys.count("attention.head_count", has_attention ? c.n_heads : 0);
  if (has_attention) {
    write_kv_heads(c, keys);
    keys.count("attention.key_length", c.head_dim);
    keys.count("attention.value_length", c.head_dim);
  }
  for (const PartKind* kind : all_kinds())
    if (kind->write_gguf != nullptr && uses(c, *kind)) kind->write_gguf(c, keys);
  const bool is_layer_norm = c.arch->norm == NormKind::kLayer;
  keys.set(is_layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", c.norm_eps);
  if (c.sliding_window > 0)
    keys.count("attention.sliding_window", c.arch->bidirectional ? 2 * (c.sliding_window - 1) : c.sliding_window);
  if (c.bidirectional && (!c.arch->bidirectional || c.arch->encoder)) keys.set("attention.causal", false);
  keys.count("vocab_size", c.n_vocab);
}

// n_rows: rows of the embedding.
void write_tokenizer_keys(const Checkpoint& checkpoint, int n_rows, GgufWriter& writer) {
  const HfDirectory* directory = checkpoint.directory();
  CHECK(directory != nullptr);
  if (checkpoint.has_tokenizer()) {
    checkpoint.tokenizer();  // checks the tokenizer
    const auto tokenizer = read_hf_tokenizer(*directory, read_hf_ends(*directory));
    if (has_classifier(checkpoint)) tokenizer->spec.pad = classifier_padding(checkpoint);
    write_tokenizer(tokenizer->spec, n_rows, writer);
  } else {
    log_warn("{}: tokenizer.json is missing: the file will have no tokenizer", printable(checkpoint.path()));
  }
}

}  // namespace

void write_gguf_keys(const Checkpoint& checkpoint, const Config& config, GgufWriter& writer) {
  const std::string arch = config.arch->gguf_name;
  if (config.activation && config.activation != config.arch->activation)
    throw Error(
        "{}: GGUF cannot store another activation for models of type '{}': run the directory without converting it",
        printable(checkpoint.path()), config.arch->hf_name);
  writer.set("general.architecture", arch);
  writer.set("general.type", std::string("model"));
  writer.set("general.name", config.name);
  write_generation_config(checkpoint.generation(), writer);
  const GgufKeyWriter keys(writer, arch);
  write_sizes(config, keys);
  write_rope(checkpoint, config, keys);
  write_layers(checkpoint, config, keys);
  write_experts(config.experts, keys);
  write_scales(config, keys);
  write_pooling_keys(checkpoint, arch, writer);
  write_tokenizer_keys(checkpoint, config.n_vocab, writer);
  if (const auto chat_template = checkpoint.chat_template()) writer.set("tokenizer.chat_template", *chat_template);
}

}  // namespace ingot
