// Config: every number of a model, read once from the checkpoint's keys and checked before any use, so that later code
// cannot divide by zero.
#pragma once
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/arch.h"
#include "model/rope.h"

namespace ingot {

class Gguf;
class HfDirectory;
struct HfConfig;
struct Share;

// What may differ between layers of one model.
enum class LayerRope : uint8_t { kMain, kLocal, kNone };
struct LayerKind {
  int window = 0;  // tokens that a token sees, itself included (to each side if the model is bidirectional); 0: all
  LayerRope rope = LayerRope::kMain;
  bool experts = false;    // the feed-forward is a mixture of experts
  bool recurrent = false;  // a gated delta net replaces attention
};

// Mixtures of experts; models without experts have n = 0.
struct ExpertConfig {
  int n = 0;
  int n_used = 0;      // experts that each token uses
  int ffn_dim = 0;     // of one expert
  int shared_dim = 0;  // of the expert that every token uses; 0: the model has no shared expert
  Scoring scoring = Scoring::kSoftmax;
  bool normalize = false;
  float scale = 1;
  int n_groups = 1, n_groups_used = 1;
  // Of a rank: its first expert, and the first columns of its part of each expert and of the shared expert.
  int64_t first = 0, first_column = 0, first_shared = 0;
};

// Attention over latents; other models have kv_rank = 0. The cache holds one latent for each token, shared by all
// heads: rope_dim rotated elements, then kv_rank others. Config's head_dim is the size of the latent, and n_kv_heads is
// 1.
struct LatentConfig {
  int q_rank = 0;  // of the latent from which queries are made; 0: queries have no latent
  int kv_rank = 0;
  int nope_dim = 0, rope_dim = 0;  // elements of a query's head without rope, and with rope
  int value_dim = 0;
  float log_stretch = 0;  // scores are multiplied by (1 + log_stretch * ln(factor of the rope scaling))^2
};

constexpr int kMaxConvWidth = 16;

// Gated delta nets (arXiv:2412.06464); other models have n_value_heads = 0. Their heads are not the attention's heads.
struct DeltaConfig {
  int n_key_heads = 0, n_value_heads = 0;
  int key_dim = 0, value_dim = 0;  // of one head
  int conv_width = 0;              // inputs that the short convolution sees in each channel
  bool tiled = false;              // value head h uses key head h % n_key_heads; otherwise neighbours share one
  int64_t first_key_head = 0;      // of a rank

  int all_keys() const { return n_key_heads * key_dim; }
  int all_values() const { return n_value_heads * value_dim; }
  int n_channels() const { return 2 * all_keys() + all_values(); }  // q, k and v
};

struct DraftHeadConfig;

struct Config {
  // Set for one of several ranks (shards.h): the numbers of heads and the feed-forward widths are those of the rank.
  // Null: the whole model.
  std::shared_ptr<const Share> share;
  const Arch* arch = nullptr;
  std::string name;  // general.name, as in the file: print with printable()
  int n_layers = 0;
  int dim = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int ffn_dim = 0;
  int n_vocab = 0;
  int n_ctx_train = 0;
  float norm_eps = 0;
  int rot_dim = 0;  // dimensions of a head that rope rotates
  float rope_theta = 10000;
  RopeScaling rope_scaling;
  float local_theta = 0;  // rope base of layers with LayerRope::kLocal, not scaled; 0: no layer has it
  RopeLayout rope_layout = RopeLayout::kHalfSplit;
  int n_token_types = 0;   // of the texts of a pair; 0: the model does not distinguish them
  int first_position = 0;  // the row of the table of positions for position 0; converters to GGUF drop the rows before
  std::optional<Activation> activation;  // if not the architecture's
  int sliding_window = 0;         // of the layers that have a window; 0: no layer has a window
  std::vector<LayerKind> layers;  // [n_layers]; empty: all layers are alike
  bool bidirectional = false;     // a token also sees the tokens after it: the model embeds texts and cannot generate
  ExpertConfig experts;
  LatentConfig latent;
  DeltaConfig delta;
  float embedding_scale = 1, residual_scale = 1, logit_scale = 1;  // multipliers
  float attention_scale = 0;                                       // on q·k; 0: default_score_scale()
  float attention_softcap = 0, logit_softcap = 0;                  // 0: none
  bool attention_bias = false;      // the file says that q, k and v have biases, so these tensors must exist
  std::shared_ptr<const DraftHeadConfig> draft_head;  // runs with the model; null: none
  bool reads_pair = false;          // the layer of an EAGLE-3 head: its mixer reads a pair (DraftInputBlock)
  std::optional<bool> tied_output;  // the embedding is the output matrix; nothing: only if the checkpoint has none

  int q_dim() const { return n_heads * head_dim; }
  int kv_dim() const { return n_kv_heads * head_dim; }
  // The number of inputs of attention's output projection.
  int attended_dim() const { return latent.kv_rank > 0 ? n_heads * latent.value_dim : q_dim(); }
  LayerKind layer(int i) const {
    return layers.empty() ? LayerKind{.window = sliding_window, .experts = experts.n > 0} : layers[i];
  }
  int n_recurrent_layers() const { return static_cast<int>(std::ranges::count_if(layers, &LayerKind::recurrent)); }
  int n_kv_layers() const { return n_layers - n_recurrent_layers(); }  // layers that store keys and values
  // The most tokens that a token sees in any layer; 0: some layer, or the draft head, sees all tokens.
  int widest_window() const;
  // The factor on q·k if the checkpoint does not state it; for latents, the factor for the keys made from the latents.
  float default_score_scale() const {
    if (latent.kv_rank == 0) return 1.0f / std::sqrt(static_cast<float>(head_dim));
    const float stretch = 1.0f + latent.log_stretch * std::log(std::max(1.0f, rope_scaling.factor));
    return stretch * stretch / std::sqrt(static_cast<float>(latent.nope_dim + latent.rope_dim));
  }
  float score_scale() const { return attention_scale > 0 ? attention_scale : default_score_scale(); }
};

// Converts the window of a file to the window of a layer: bidirectional models store the width over both sides.
inline int layer_window(const Arch& arch, int in_file) {
  return arch.bidirectional && in_file > 0 ? in_file / 2 + 1 : in_file;
}

// Throws Error naming the key that is missing, has the wrong type or is out of range, and its value.
Config config_from_gguf(const Gguf& file);
Config config_from_hf(const HfConfig& file);
// Reads config.json; missing keys get the defaults of the architecture.
HfConfig read_hf_config_of(const HfDirectory& directory);

}  // namespace ingot
