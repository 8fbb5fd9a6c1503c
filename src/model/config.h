// Config: every number of a model, read once from its checkpoint's keys and checked; nothing divides by them before
// that.
#pragma once
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "model/arch.h"
#include "model/rope.h"

namespace ingot {

class Gguf;
class HfDirectory;
struct HfConfig;

// What one layer has that another of the same model may not.
enum class LayerRope : uint8_t { kMain, kLocal, kNone };
struct LayerKind {
  int window = 0;  // a token sees so many, its own included (in both directions if the model looks there); 0: all
  LayerRope rope = LayerRope::kMain;
  bool experts = false;    // its feed-forward is a mixture of experts
  bool recurrent = false;  // a gated delta net stands in place of attention
};

// Of models with experts; the others have n = 0.
struct ExpertConfig {
  int n = 0;
  int n_used = 0;      // by each token
  int ffn_dim = 0;     // of one expert
  int shared_dim = 0;  // of the expert that all tokens go to; 0: there is none
  Scoring scoring = Scoring::kSoftmax;
  bool normalize = false;
  float scale = 1;
  int n_groups = 1, n_groups_used = 1;
};

// Of attention over latents; the others have kv_rank = 0. The cache holds one latent a token, which all heads share:
// its rope_dim elements that turn, then kv_rank others. Config's head_dim is that of the latent, and its n_kv_heads 1.
struct LatentConfig {
  int q_rank = 0;  // of the queries' own latent; 0: they have none
  int kv_rank = 0;
  int nope_dim = 0, rope_dim = 0;  // of a query: what does not turn, and what does
  int value_dim = 0;
  float log_stretch = 0;  // scores grow by (1 + this * ln(rope's factor))^2
};

constexpr int kMaxConvWidth = 16;

// Of gated delta nets (arXiv:2412.06464); in other models n_value_heads is 0. Their heads are not those of attention.
struct DeltaConfig {
  int n_key_heads = 0, n_value_heads = 0;
  int key_dim = 0, value_dim = 0;  // of a head
  int conv_width = 0;              // inputs of a channel that the short convolution sees
  bool tiled = false;              // value head h has the key head h % n_key_heads; else neighbours share one

  int all_keys() const { return n_key_heads * key_dim; }
  int all_values() const { return n_value_heads * value_dim; }
  int n_channels() const { return 2 * all_keys() + all_values(); }  // q, k and v
};

struct Config {
  const Arch* arch = nullptr;
  std::string name;  // general.name, as the file has it: print with printable()
  int n_layers = 0;
  int dim = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int ffn_dim = 0;
  int n_vocab = 0;
  int n_ctx_train = 0;
  float norm_eps = 0;
  int rot_dim = 0;  // how many of a head's dimensions turn
  float rope_theta = 10000;
  RopeScaling rope_scaling;
  float local_theta = 0;  // rope base of layers with LayerRope::kLocal, whose rope is not scaled; 0: there are none
  RopeLayout rope_layout = RopeLayout::kHalfSplit;
  int sliding_window = 0;         // of the layers that have one; 0: none has
  std::vector<LayerKind> layers;  // [n_layers], or empty where all are alike
  bool bidirectional = false;     // a token sees those after it too: the model embeds texts, and writes none
  ExpertConfig experts;
  LatentConfig latent;
  DeltaConfig delta;
  float embedding_scale = 1, residual_scale = 1, logit_scale = 1;  // multiply
  float attention_scale = 0;                                       // on q·k; 0: default_score_scale()
  float attention_softcap = 0, logit_softcap = 0;                  // 0: none
  bool attention_bias = false;      // the file says that q, k and v have biases: tensors that must be there, then
  std::optional<bool> tied_output;  // the output matrix is the embedding; nothing: when the checkpoint has none

  int q_dim() const { return n_heads * head_dim; }
  int kv_dim() const { return n_kv_heads * head_dim; }
  // What the output projection of attention takes.
  int attended_dim() const { return latent.kv_rank > 0 ? n_heads * latent.value_dim : q_dim(); }
  LayerKind layer(int i) const {
    return layers.empty() ? LayerKind{.window = sliding_window, .experts = experts.n > 0} : layers[i];
  }
  int n_recurrent_layers() const { return static_cast<int>(std::ranges::count_if(layers, &LayerKind::recurrent)); }
  int n_kv_layers() const { return n_layers - n_recurrent_layers(); }  // that keep keys and values
  // The most that a token sees in any layer; 0: some layer sees all.
  int widest_window() const;
  // On q·k, where the checkpoint does not say: of latents, as if their keys had been made.
  float default_score_scale() const {
    if (latent.kv_rank == 0) return 1.0f / std::sqrt(static_cast<float>(head_dim));
    const float stretch = 1.0f + latent.log_stretch * std::log(std::max(1.0f, rope_scaling.factor));
    return stretch * stretch / std::sqrt(static_cast<float>(latent.nope_dim + latent.rope_dim));
  }
  float score_scale() const { return attention_scale > 0 ? attention_scale : default_score_scale(); }
};

// A file's window as a layer's: of models that look to both sides, files have the whole width.
inline int layer_window(const Arch& arch, int in_file) {
  return arch.bidirectional && in_file > 0 ? in_file / 2 + 1 : in_file;
}

// Throws Error naming the key and the value that are missing, of the wrong type or out of range.
Config config_from_gguf(const Gguf& file);
Config config_from_hf(const HfConfig& file);
// config.json, with the defaults of its architecture for the keys that it lacks.
HfConfig read_hf_config_of(const HfDirectory& directory);

}  // namespace ingot
