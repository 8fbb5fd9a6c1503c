// TowerConfig: every number of a vision tower and of its projector, read once from the keys of either dialect and
// checked before any use.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "backend/ops.h"
#include "model/files/weights.h"

namespace ingot {

class Gguf;
class Json;

// The names of a layer's tensors, without ".weight" and ".bias"; "{}" stands for the layer. Empty: the tower has none.
struct TowerLayerNames {
  const char *norm1, *norm2, *q, *k, *v, *qkv, *o, *gate, *up, *down;
  const char *q_norm = "", *k_norm = "", *attention_norm = "", *ffn_norm = "";  // of heads, and of outputs
};

enum class Projector : uint8_t {
  kLinear,  // one matrix on the vectors of neighbouring patches, side by side
  kGemma,   // one matrix on the mean of neighbouring patches
  kGemma4,  // as kGemma, after a scale and, in some checkpoints, a shift and a factor of each number
  kQwen     // two matrices on the vectors of neighbouring patches, side by side
};

// A family of towers: the facts that no key of a checkpoint states.
struct TowerFamily {
  const char* gguf_name;  // clip.projector_type
  const char* hf_name;    // model_type of config.json, '|' between
  const char* processor;  // the processor's name in transformers
  Projector projector;
  NormKind norm = NormKind::kLayer;
  bool has_rope = false;    // by row and column of a patch
  bool is_dynamic = false;  // pictures have any size
  // How the rotated dimensions of the text model turn with time, row and column: in turns, or in successive parts. Only
  // of models with such ropes.
  enum class Axes : uint8_t { kNone, kTurns, kParts } axes = Axes::kNone;
  bool is_gemma4 = false;  // norms of heads and of outputs, ropes for halves of a head, and a table for each axis
  int n_frames = 1;        // of a patch in the file: 2 in models that also read videos
  Activation default_act = Activation::kGeluTanh;
  int default_dim = 0, default_ffn_dim = 0, default_layers = 0, default_heads = 0, default_patch = 0;
  TowerLayerNames hf_layer = {};
  const char* hf_prefixes = "";   // of the tower's tensors, '|' between: the first with patch embeddings
  const char* hf_patches = "";    // the patch embedding, after the prefix; so are the next ones
  const char* hf_positions = "";  // the table of positions; empty: there is none
  const char* hf_post_norm = "";
  const char *hf_merger1 = "", *hf_merger2 = "";  // the projector's matrices
};
std::span<const TowerFamily> tower_families();

struct TowerConfig {
  const TowerFamily* family = nullptr;
  std::string source;  // the file, for messages: safe to print
  int dim = 0, ffn_dim = 0, n_layers = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0;
  int image_size = 0;  // pixels of the image's side; 0: pictures have any size
  int patch = 0;       // pixels of a patch's side
  int side = 0;        // of the table of positions, in patches
  int merge = 1;       // patches of a side of the group that becomes one vector
  int out_dim = 0;     // of the vectors: the text model's embedding
  float eps = 0;
  float rope_theta = 10000;
  Activation act = Activation::kGeluTanh;
  std::vector<int> deepstack_layers;  // layers whose output a projector of their own adds to the text model's layers
  int window = 0;                     // of attention, in groups of patches of a side; 0: layers see the whole picture
  std::vector<int> whole_layers;      // with a window: the layers without

  bool clips = false;                               // Gemma 4: products have limits
  bool standardizes = false;                        // Gemma 4: the projector's shift and factors
  bool sees_all_in_windows = false;                 // Gemma 4: image tokens see each other in layers with a window
  int32_t pad_token = -1;                           // Gemma 4: the text model's, if the files name it
  std::string image_token, begin_token, end_token;  // Gemma 4: if the files name them

  int q_dim() const { return n_heads * head_dim; }
  int kv_dim() const { return n_kv_heads * head_dim; }
  bool is_dynamic() const { return family->is_dynamic; }
  bool is_whole(int layer) const;
  int patch_dim() const { return 3 * patch * patch; }
  int rows_of_tile() const { return side / merge * (side / merge); }  // in towers of one size
  int row_dim() const { return out_dim * (1 + static_cast<int>(deepstack_layers.size())); }
};

// Whether ingot has the tower of this config.json. Models with other towers only read text.
bool is_known_tower(const Json& root);
// root: of config.json, with vision_config. Throws Error naming the key.
TowerConfig tower_config_from_hf(const Json& root, const std::string& source, int text_dim);
// Throws Error naming the key, also if the file is no projector or of an unknown kind.
TowerConfig tower_config_from_gguf(const Gguf& file, int text_dim);

// The patches of a picture in the order of a step: the patches of a window are neighbours, and so are those of a group.
struct WindowOrder {
  std::vector<int> patches;  // [n_patches]: the place of each, row * columns + column
  std::vector<int> lengths;  // patches of each window; without windows: of the picture
  std::vector<int> groups;   // [n_groups]: the place of each group, row by row of the picture
};
WindowOrder window_order(int rows, int columns, const TowerConfig& config);

}  // namespace ingot
