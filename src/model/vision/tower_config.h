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
};

// A family of towers: the facts that no key of a checkpoint states.
struct TowerFamily {
  const char* gguf_name;  // clip.projector_type
  const char* hf_name;    // model_type of config.json, '|' between
  const char* processor;  // the processor's name in transformers
  NormKind norm;
  bool merges_by_mean;       // the projector averages neighbouring patches; otherwise it joins their vectors
  float default_eps;
  Activation default_act;
  TowerLayerNames hf_layer;
  const char* hf_prefixes;   // of the tower's tensors, '|' between: the first with patch embeddings
  const char* hf_patches;    // the patch embedding, after the prefix
  const char* hf_positions;  // the table of positions, after the prefix
  const char* hf_post_norm;  // after the prefix
};
std::span<const TowerFamily> tower_families();

struct TowerConfig {
  const TowerFamily* family = nullptr;
  std::string source;  // the file, for messages: safe to print
  int dim = 0, ffn_dim = 0, n_layers = 0, n_heads = 0, head_dim = 0;
  int image_size = 0;  // pixels of the image's side
  int patch = 0;     // pixels of a patch's side
  int side = 0;      // patches of a side of the image, in towers of one size; in others, of the table of positions
  int merge = 1;     // patches of a side of the group that becomes one vector
  int out_dim = 0;   // of the vectors: the text model's embedding
  float eps = 0;
  Activation act = Activation::kGeluTanh;

  int patch_dim() const { return 3 * patch * patch; }
  int rows_of_tile() const { return side / merge * (side / merge); }  // in towers of one size
};

// Whether ingot has the tower of this config.json. Models with other towers only read text.
bool is_known_tower(const Json& root);
// root: of config.json, with vision_config. Throws Error naming the key.
TowerConfig tower_config_from_hf(const Json& root, const std::string& source, int text_dim);
// Throws Error naming the key, also if the file is no projector or of an unknown kind.
TowerConfig tower_config_from_gguf(const Gguf& file, int text_dim);

}  // namespace ingot
