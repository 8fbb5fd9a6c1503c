// Config: every number of a model, read once from the checkpoint's keys and checked before any use, so that later code
// cannot divide by zero.
#pragma once
#include <algorithm>
#include <any>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/config/arch.h"
#include "model/config/rope.h"

namespace ingot {

class Gguf;
class HfDirectory;
struct HfConfig;
struct PartKind;
struct Share;

// A part of a layer, such as attention or a feed-forward (kind.h).
struct LayerPart {
  const PartKind* kind = nullptr;
  bool beside = false;  // reads the same input as the part before, and both outputs are added
  bool operator==(const LayerPart&) const = default;
};

// What may differ between layers of one model.
enum class LayerRope : uint8_t { kMain, kLocal, kNone };
struct LayerHeads {
  int n_heads = 0, n_kv_heads = 0, head_dim = 0;
  bool operator==(const LayerHeads&) const = default;
};
struct LayerConfig {
  int window = 0;  // tokens that a token sees, itself included (to each side if the model is bidirectional); 0: all
  LayerRope rope = LayerRope::kMain;
  std::vector<LayerPart> parts;  // in order; empty: the parts of the architecture
  int kv_layer = -1;             // attention reads the keys and values of this earlier layer; -1: its own
  std::optional<LayerHeads> heads;  // of its attention, if not those of the model
  int ffn_dim = 0;                  // of its feed-forward; 0: that of the model
  std::shared_ptr<const Share> share;  // of a rank, where heads or ffn_dim are the layer's own

  bool has(const PartKind& kind) const { return std::ranges::count(parts, &kind, &LayerPart::kind) > 0; }
};

// Mixtures of experts; models without experts have n = 0.
struct ExpertConfig {
  int n = 0;
  int n_used = 0;      // experts that each token uses
  int ffn_dim = 0;     // of one expert
  int shared_dim = 0;  // of the expert that every token uses; 0: the model has no shared expert
  int latent_dim = 0;  // experts read and write a projection of the stream to this many columns; 0: the stream
  Scoring scoring = Scoring::kSoftmax;
  bool normalize = false;
  float scale = 1, shared_scale = 1;
  int n_groups = 1, n_groups_used = 1;
  // Of a rank: its first expert, and the first columns of its part of each expert and of the shared expert.
  int64_t first = 0, first_column = 0, first_shared = 0;
};

// The sizes that belong to kinds of layer parts (layers/): structs, at most one of each type.
class PartConfigs {
 public:
  template <class T>
  const T& get() const {
    static const T none;
    for (const auto& [type, value] : all_)
      if (type == &kTypeOf<T>) return *std::any_cast<T>(&value);
    return none;
  }
  template <class T>
  void set(const T& part) {
    for (auto& [type, value] : all_)
      if (type == &kTypeOf<T>) return void(value = part);
    all_.emplace_back(&kTypeOf<T>, part);
  }

 private:
  template <class T>
  static constexpr char kTypeOf = 0;  // its address identifies T
  std::vector<std::pair<const char*, std::any>> all_;
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
  float norm_eps = 0, post_norm_eps = 0;  // post_norm_eps: of norms of outputs; 0: norm_eps
  std::optional<NormKind> norm_kind;      // if not the architecture's
  int rot_dim = 0;  // dimensions of a head that rope rotates
  float rope_theta = 10000;
  RopeScaling rope_scaling;
  float local_theta = 0;  // rope base of layers with LayerRope::kLocal, not scaled; 0: no layer has it
  int local_rot_dim = 0;  // of these layers; 0: rot_dim
  bool images_see_all_in_windows = false;  // tokens of an image see each other only in layers with a window
  int32_t image_row_token = -1;  // an image's rows get this token's own inputs of layers (LayerInputsBlock); -1: none
  int n_deepstack = 0;  // of the first layers: images add vectors behind each (DeepstackBlock)
  std::vector<int32_t> rope_axes;  // [rot_dim / 2]: of each frequency of the main rope (RopeTable); empty: one axis
  RopeLayout rope_layout = RopeLayout::kHalfSplit;
  int n_token_types = 0;   // of the texts of a pair; 0: the model does not distinguish them
  int first_position = 0;  // the row of the table of positions for position 0; converters to GGUF drop the rows before
  std::optional<Activation> activation;  // if not the architecture's
  std::optional<bool> norms_heads;       // if not the architecture's
  bool gates_heads = false;              // the gate of attention has one number for each head
  PositionScale query_scale;             // of all layers, or of those without rope
  bool scales_without_rope = false;
  std::vector<Xielu> xielu;              // [n_layers] or empty: of feed-forwards, as in the file: before softplus
  int sliding_window = 0;         // of the layers that have a window; 0: no layer has a window
  std::vector<LayerConfig> layers;  // [n_layers]; empty: all layers have the window, and the architecture's parts
  bool bidirectional = false;     // a token also sees the tokens after it: the model embeds texts and cannot generate
  ExpertConfig experts;
  PartConfigs parts;
  float embedding_scale = 1, residual_scale = 1, logit_scale = 1;  // multipliers
  int score_dim = 0;  // elements of a query's head, where head_dim is the size of a latent; 0: head_dim
  float attention_scale = 0;                                       // on q·k; 0: default_score_scale()
  float attention_softcap = 0, logit_softcap = 0;                  // 0: none
  bool attention_bias = false;      // the file says that q, k and v have biases, so these tensors must exist
  std::shared_ptr<const DraftHeadConfig> draft_head;  // runs with the model; null: none
  bool reads_pair = false;          // the layer of an EAGLE-3 head: its mixer reads a pair (DraftInputBlock)
  // Of the sources that layers read (Batch::sources); 0: no layer reads one.
  int source_dim = 0, max_source_rows = 0;
  std::optional<bool> tied_output;  // the embedding is the output matrix; nothing: only if the checkpoint has none

  NormKind norm() const { return norm_kind.value_or(arch->norm); }
  int q_dim() const { return n_heads * head_dim; }
  int kv_dim() const { return n_kv_heads * head_dim; }
  // With the parts of the architecture, if the layer has none of its own.
  LayerConfig layer(int i) const;
  template <class T>
  const T& part() const {
    return parts.get<T>();
  }
  int n_recurrent_layers() const;  // layers that keep states
  // The factor on q·k if the checkpoint does not state it.
  float default_score_scale() const {
    if (arch->score_scale > 0) return arch->score_scale;
    const float stretch = 1.0f + rope_scaling.log_stretch * std::log(std::max(1.0f, rope_scaling.factor));
    return stretch * stretch / std::sqrt(static_cast<float>(score_dim > 0 ? score_dim : head_dim));
  }
  float score_scale() const { return attention_scale > 0 ? attention_scale : default_score_scale(); }
};

// The config for the sizes of one layer: its own heads and feed-forward in place of the model's.
class LayerSizes {
 public:
  LayerSizes(const Config& config, int layer);
  operator const Config&() const { return own_ ? *own_ : model_; }  // NOLINT: stands for a config

 private:
  const Config& model_;
  std::optional<Config> own_;
};

// The last layer before `end` with the same window (or none) as the layer. -1: there is none.
inline int last_of_kind(const Config& c, int layer, int end) {
  int i = end - 1;
  while (i >= 0 && (c.layers[i].window > 0) != (c.layers[layer].window > 0)) --i;
  return i;
}

// The factor on embeddings by Arch::scales_embedding.
float usual_embedding_scale(const Config& c);

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
