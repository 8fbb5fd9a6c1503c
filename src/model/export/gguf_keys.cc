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
#include "model/config/multipliers.h"
#include "model/config/rope_sections.h"
#include "model/export/head_export.h"
#include "model/files/tensor_finder.h"
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
  if (scaling.extrapolation != usual.extrapolation) keys.set("rope.scaling.yarn_ext_factor", scaling.extrapolation);
  const float own = scaling.log_stretch > 0 ? 1.0f : yarn_magnitude(scaling.factor, scaling.extrapolation);
  const float extra = scaling.magnitude / own;
  if (std::fabs(extra - 1.0f) > 1e-6f) keys.set("rope.scaling.attn_factor", extra);
}

// Llama 3's scaling is written as a tensor, rope_freqs (gguf_export.cc).
void write_rope(const Checkpoint& checkpoint, const Config& c, const GgufKeyWriter& keys) {
  if (c.arch->learned_positions || kv_mixer(*c.arch) == nullptr) return;
  keys.count("rope.dimension_count", c.rot_dim);
  keys.set("rope.freq_base", c.rope_theta);
  if (std::vector<int> sizes = c.part<RopeSections>().sizes; !sizes.empty()) {
    sizes.resize(4);
    keys.set("rope.dimension_sections", std::vector<int32_t>(sizes.begin(), sizes.end()));
  }
  const RopeScaling& scaling = c.rope_scaling;
  if (find_gguf_arch(c.arch->gguf_name).rope_opt_in) {
    bool has_rope = false;
    for (int i = 0; i < c.n_layers; ++i) has_rope = has_rope || c.layer(i).rope != LayerRope::kNone;
    keys.set("rope.scaling.finetuned", has_rope);
  }
  if (c.local_theta > 0) keys.set("rope.freq_base_swa", c.local_theta);
  if (c.local_rot_dim > 0) keys.count("rope.dimension_count_swa", c.local_rot_dim);
  if (scaling.kind == RopeScalingKind::kNone || scaling.kind == RopeScalingKind::kLlama3 ||
      scaling.kind == RopeScalingKind::kProportional)
    return;
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

// After some dense layers, each n-th layer has experts.
void write_expert_layers(const Checkpoint& checkpoint, const Config& c, const GgufKeyWriter& keys) {
  int n_dense = 0;
  while (n_dense < c.n_layers && !has_experts(c.layer(n_dense))) ++n_dense;
  const auto fits = [&](int first, int step) {
    for (int i = 0; i < c.n_layers; ++i)
      if (has_experts(c.layer(i)) != (i >= first && (i + 1) % step == 0)) return false;
    return true;
  };
  for (int step = 1; step <= c.n_layers; ++step)
    for (const int first : {c.arch->scales_expert_input ? 0 : n_dense, 0}) {
      if (!fits(first, step)) continue;
      keys.count("leading_dense_block_count", first);
      const bool needs_step = std::string_view(c.arch->gguf_name) == "ernie4_5-moe";  // llama.cpp's reader
      if (step > 1 || needs_step || c.arch->scales_expert_input) keys.count("interleave_moe_layer_step", step);
      return;
    }
  throw Error("{}: GGUF cannot store which layers have experts: run the directory without converting it",
              printable(checkpoint.path()));
}

// Of feed-forwards whose activation has numbers, which directories keep as tensors.
void write_xielu(const Checkpoint& checkpoint, const Config& c, GgufWriter& writer) {
  if (c.xielu.empty()) return;
  const auto source = checkpoint.weights();
  TensorFinder finder(*source, c);
  std::vector<float> numbers[4];
  for (int layer = 0; layer < c.n_layers; ++layer) {
    Block block = kFeedForwardPart.make(c, layer);
    size_t n = 0;
    for (const VectorRow& row : kFeedForwardPart.rows().vectors) {
      HostTensor host;
      if (row.scalar == nullptr) continue;
      float& number = row.scalar(block.data());
      if (finder.find(row, layer, host)) decode_row(host.format, host.data, &number, 1);
      numbers[n++].push_back(number);
    }
  }
  constexpr const char* kKeys[] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
  for (size_t n = 0; n < 4; ++n) writer.set(kKeys[n], numbers[n]);
}

// Writes the differences between layers, if readers do not assume them.
void write_layers(const Checkpoint& checkpoint, const Config& c, const GgufKeyWriter& keys) {
  const Arch& arch = *c.arch;
  if ((arch.encoder || arch.first_is_global) && c.sliding_window > 0)
    keys.count("attention.sliding_window_pattern", global_period(checkpoint, c));
  if (arch.encoder) return;
  std::vector<bool> windowed;
  bool as_usual = true;
  if (c.bidirectional && !arch.bidirectional && c.sliding_window > 0)
    throw Error("{}: GGUF cannot store the window of bidirectional attention: run the directory without converting it",
                printable(checkpoint.path()));
  for (int i = 0; i < c.n_layers; ++i) {
    const LayerConfig layer = c.layer(i);
    windowed.push_back(layer.window > 0);
    as_usual = as_usual && windowed[i] == arch.has_window(i, arch.window_period);
    const bool without_rope = (arch.rope_opt_in && layer.rope == LayerRope::kNone) ||
                              (arch.no_rope_period > 0 && (i + 1) % arch.no_rope_period == 0) ||
                              (arch.rope_needs_window && c.sliding_window > 0 && !windowed[i]);
    if ((layer.rope == LayerRope::kNone) != without_rope)
      throw Error("{}: GGUF cannot store that layer {} has {} rope: run the directory without converting it",
                  printable(checkpoint.path()), i, without_rope ? "a" : "no");
  }
  const bool lists_windows =
      arch.rope_needs_window || arch.local_theta == kSameTheta || arch.norms_values;  // like llama.cpp's converter
  if (c.sliding_window > 0 && !arch.first_is_global && (lists_windows || !as_usual))
    keys.set("attention.sliding_window_pattern", windowed);
  if (c.experts.n > 0 && !arch.one_part && !arch.routers_mark_experts) write_expert_layers(checkpoint, c, keys);
  if (arch.one_part && uses(c, kExpertsPart) && uses(c, kFeedForwardPart))
    throw Error("{}: GGUF cannot store which layers have experts: run the directory without converting it",
                printable(checkpoint.path()));
}

void write_experts(const Checkpoint& checkpoint, const ExpertConfig& e, const GgufKeyWriter& keys) {
  if (e.n == 0) return;
  const bool averages = checkpoint.config().arch->norm_by_eps;  // readers know that such models average
  if ((e.shared_scale != 1) != (averages && e.shared_dim > 0))
    throw Error(
        "{}: GGUF cannot store how this model joins shared and other experts: run the directory without converting it",
        printable(checkpoint.path()));
  keys.count("expert_count", e.n);
  keys.count("expert_used_count", e.n_used);
  keys.count("expert_feed_forward_length", e.ffn_dim);
  if (e.shared_dim > 0) keys.count("expert_shared_feed_forward_length", e.shared_dim);
  if (e.shared_dim > 0 && checkpoint.config().arch->one_part) {
    keys.count("expert_shared_count", 1);  // of any width
  } else if (e.shared_dim > 0 && e.shared_dim % e.ffn_dim == 0) {
    keys.count("expert_shared_count", e.shared_dim / e.ffn_dim);
  }
  keys.set("expert_weights_norm", e.normalize);
  keys.set("expert_weights_scale", e.scale / e.shared_scale);
  if (e.latent_dim > 0) keys.count("moe_latent_size", e.latent_dim);
  keys.count("expert_gating_func", e.scoring == Scoring::kSigmoid ? 2 : 1);
  if (e.n_groups == 1) return;
  keys.count("expert_group_count", e.n_groups);
  keys.count("expert_group_used_count", e.n_groups_used);
}

void write_scales(const Config& c, const GgufKeyWriter& keys) {
  const auto unless = [&](const char* key, float value, float usual) {
    if (std::fabs(value - usual) > 1e-6f * usual) keys.set(key, value);
  };
  const bool is_folded = c.part<Multipliers>().are_folded;  // into the embedding and the output matrix
  if (!c.arch->scales_embedding && !is_folded) unless("embedding_scale", c.embedding_scale, 1);
  unless("residual_scale", c.residual_scale, 1);
  const bool is_granite = std::string_view(c.arch->gguf_name).starts_with("granite");  // llama.cpp needs the key
  if (!is_folded) unless("logit_scale", c.arch->scales_logits ? c.logit_scale : 1 / c.logit_scale, is_granite ? 0 : 1);
  if (c.query_scale.beta > 0) keys.set("attention.temperature_scale", c.query_scale.beta);
  if (c.query_scale.beta > 0) keys.count("attention.temperature_length", c.query_scale.period);
  if (!c.arch->normalizes_embedding) unless("attention.scale", c.score_scale(), c.default_score_scale());
  if (c.attention_softcap > 0) keys.set("attn_logit_softcapping", c.attention_softcap);
  if (c.logit_softcap > 0) keys.set("final_logit_softcapping", c.logit_softcap);
}

// The columns of a layer's feed-forward or experts. Layers without either have none.
int ffn_columns(const Config& c, int layer) {
  const LayerConfig own = c.layer(layer);
  if (!c.arch->one_part || own.has(kFeedForwardPart)) return c.ffn_dim;
  return own.has(kExpertsPart) ? c.experts.ffn_dim : 0;
}

// One number for all layers, or a list if they differ. of: of a layer, from the config with its sizes.
void write_of_layers(const Config& c, const char* key, int (*of)(const Config& sizes, int layer),
                     const GgufKeyWriter& keys) {
  std::vector<int32_t> all;
  for (int i = 0; i < c.n_layers; ++i) all.push_back(of(LayerSizes(c, i), i));
  const bool same = std::ranges::count(all, all[0]) == c.n_layers;
  same ? keys.count(key, all[0]) : keys.set(key, all);
}

// Layers without attention have no heads of keys.
void write_kv_heads(const Config& c, const GgufKeyWriter& keys) {
  if (!c.arch->lists_kv_heads)
    return write_of_layers(c, "attention.head_count_kv", [](const Config& l, int) { return l.n_kv_heads; }, keys);
  std::vector<uint32_t> heads;
  for (int i = 0; i < c.n_layers; ++i) heads.push_back(c.layer(i).has(*kv_mixer(*c.arch)) ? c.n_kv_heads : 0);
  keys.set("attention.head_count_kv", heads);
}

// Layers with a window may have heads of another length than the others. GGUF has a key for each of the two.
void write_heads(const Checkpoint& checkpoint, const Config& c, const GgufKeyWriter& keys) {
  if (kv_mixer(*c.arch) == nullptr) return keys.count("attention.head_count", 0);
  int narrow = 0;
  for (int i = 0; i < c.n_layers; ++i) {
    const LayerConfig layer = c.layer(i);
    const int head_dim = layer.heads ? layer.heads->head_dim : c.head_dim;
    if (layer.window > 0 && narrow == 0) narrow = head_dim;
    if (head_dim != (layer.window > 0 ? narrow : c.head_dim))
      throw Error(
          "{}: GGUF cannot store that layer {} has heads of {} dimensions: run the directory without converting it",
          printable(checkpoint.path()), i, head_dim);
  }
  write_of_layers(c, "attention.head_count", [](const Config& l, int) { return l.n_heads; }, keys);
  write_kv_heads(c, keys);
  keys.count("attention.key_length", c.head_dim);
  keys.count("attention.value_length", c.head_dim);
  if (narrow == 0 || narrow == c.head_dim) return;
  keys.count("attention.key_length_swa", narrow);
  keys.count("attention.value_length_swa", narrow);
}

// The last layers may read the keys of an earlier layer.
void write_shared_keys(const Checkpoint& checkpoint, const Config& c, const GgufKeyWriter& keys) {
  int first = c.n_layers;
  while (first > 0 && c.layer(first - 1).kv_layer >= 0) --first;
  for (int i = 0; i < c.n_layers; ++i)
    if (c.layer(i).kv_layer != (i < first ? -1 : last_of_kind(c, i, first)))
      throw Error("{}: GGUF cannot store which keys layer {} reads: run the directory without converting it",
                  printable(checkpoint.path()), i);
  if (first < c.n_layers || c.arch->norms_values) keys.count("attention.shared_kv_layers", c.n_layers - first);
}

void write_sizes(const Checkpoint& checkpoint, const Config& c, const GgufKeyWriter& keys) {
  keys.count("block_count", c.n_layers);
  keys.count("context_length", c.n_ctx_train);
  keys.count("embedding_length", c.dim);
  if (arch_has(*c.arch, kFeedForwardPart))
    write_of_layers(c, "feed_forward_length", ffn_columns, keys);
  else
    keys.count("feed_forward_length", 0);
  write_heads(checkpoint, c, keys);
  write_shared_keys(checkpoint, c, keys);
  for (const PartKind* kind : all_kinds())
    if (kind->write_gguf != nullptr && uses(c, *kind)) kind->write_gguf(c, keys);
  const bool is_layer_norm = c.norm() == NormKind::kLayer;
  keys.set(is_layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", c.norm_eps);
  if (c.arch->one_part) keys.set("attention.layer_norm_epsilon", c.norm_eps);  // llama.cpp wants both
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
  // Readers of such models know the eps.
  if (config.post_norm_eps > 0 && !(config.arch->normalizes_embedding && config.post_norm_eps == 1e-8f))
    throw Error("{}: GGUF cannot store 'post_norm_eps': run the directory without converting it",
                printable(checkpoint.path()));
  if (config.activation && config.activation != config.arch->activation)
    throw Error(
        "{}: GGUF cannot store another activation for models of type '{}': run the directory without converting it",
        printable(checkpoint.path()), config.arch->hf_name);
  writer.set("general.architecture", arch);
  writer.set("general.type", std::string("model"));
  writer.set("general.name", config.name);
  write_generation_config(checkpoint.generation(), writer);
  const GgufKeyWriter keys(writer, arch);
  write_sizes(checkpoint, config, keys);
  write_rope(checkpoint, config, keys);
  write_layers(checkpoint, config, keys);
  write_experts(checkpoint, config.experts, keys);
  write_xielu(checkpoint, config, writer);
  write_scales(config, keys);
  write_pooling_keys(checkpoint, arch, writer);
  write_tokenizer_keys(checkpoint, config.n_vocab, writer);
  if (const auto chat_template = checkpoint.chat_template()) writer.set("tokenizer.chat_template", *chat_template);
}

}  // namespace ingot
