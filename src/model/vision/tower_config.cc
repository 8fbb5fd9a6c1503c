#include "model/vision/tower_config.h"

#include <cmath>

#include "base/error.h"
#include "io/gguf/gguf.h"
#include "io/json.h"
#include "model/config/gguf_reader.h"
#include "model/vision/names.h"

namespace ingot {
namespace {

constexpr int kMaxTowerDim = 1 << 16, kMaxTowerLayers = 1024, kMaxPatch = 256, kMaxImageSide = 1 << 14;

constexpr TowerLayerNames kSiglipLayer = {
    "encoder.layers.{}.layer_norm1",     "encoder.layers.{}.layer_norm2",      "encoder.layers.{}.self_attn.q_proj",
    "encoder.layers.{}.self_attn.k_proj", "encoder.layers.{}.self_attn.v_proj", "",
    "encoder.layers.{}.self_attn.out_proj", "", "encoder.layers.{}.mlp.fc1", "encoder.layers.{}.mlp.fc2"};

constexpr TowerFamily kFamilies[] = {
    {"idefics3", "idefics3|smolvlm", "Idefics3ImageProcessor", NormKind::kLayer, false, 1e-6f, Activation::kGeluTanh,
     kSiglipLayer, "model.vision_model.|vision_model.", "embeddings.patch_embedding", "embeddings.position_embedding",
     "post_layernorm"},
    {"gemma3", "gemma3", "Gemma3ImageProcessor", NormKind::kLayer, true, 1e-6f, Activation::kGeluTanh, kSiglipLayer,
     "model.vision_tower.vision_model.|vision_tower.vision_model.|model.vision_tower.|vision_tower.",
     "embeddings.patch_embedding", "embeddings.position_embedding", "post_layernorm"},
};

std::string known_families(const char* TowerFamily::*dialect) {
  std::string all;
  for (const TowerFamily& family : kFamilies) all += (all.empty() ? "" : ", ") + std::string(family.*dialect);
  return all;
}

// The shapes that the program needs.
void check_sizes(TowerConfig& c, int text_dim) {
  if (c.dim % c.n_heads != 0)
    throw Error("{}: the vision tower's {} heads do not divide its dimension {}", c.source, c.n_heads, c.dim);
  c.head_dim = c.dim / c.n_heads;
  if (c.image_size / c.patch < 1)
    throw Error("{}: the vision tower's images of {} pixels are smaller than its patches of {}", c.source, c.image_size,
                c.patch);
  c.side = c.image_size / c.patch;
  if (c.out_dim != text_dim)
    throw Error(
        "{}: the vision tower makes vectors of {} numbers, but the text model reads {}: it belongs to another model",
        c.source, c.out_dim, text_dim);
  if (c.side % c.merge != 0)
    throw Error("{}: the vision tower's {} patches a side cannot be merged {} by {}", c.source, c.side, c.merge,
                c.merge);
}

// An integer, or the first of a list.
int json_integer(const Json& object, std::string_view key, int64_t fallback, int64_t low, int64_t high) {
  const auto value = object.find(key);
  if (!value) return static_cast<int>(fallback);
  if (!value->is_array()) return static_cast<int>(value->integer(low, high));
  const auto list = value->elements();
  if (list.empty()) throw value->error("is an empty list");
  return static_cast<int>(list[0].integer(low, high));
}

Activation activation_of_tower(const Json& vision, Activation fallback) {
  const auto name = vision.find("hidden_act");
  if (!name) return fallback;
  if (name->string() == "gelu_pytorch_tanh" || name->string() == "gelu_new") return Activation::kGeluTanh;
  if (name->string() == "gelu") return Activation::kGelu;
  if (name->string() == "silu") return Activation::kSilu;
  throw name->error("'{}' is not supported in vision towers: supported are gelu, gelu_pytorch_tanh and silu",
                    printable(name->string(), 64));
}

// Patches of a side of the group that becomes one vector.
int merge_of_hf(const Json& root, const TowerConfig& c) {
  if (!c.family->merges_by_mean) return json_integer(root, "scale_factor", 2, 1, 64);
  const int rows = json_integer(root, "mm_tokens_per_image", 256, 1, 1 << 20);
  const int per_side = static_cast<int>(std::lround(std::sqrt(rows)));
  if (per_side * per_side != rows || c.image_size / c.patch < per_side)
    throw Error("{}: mm_tokens_per_image {} does not fit {} patches a side", c.source, rows, c.image_size / c.patch);
  return c.image_size / c.patch / per_side;
}

}  // namespace

std::span<const TowerFamily> tower_families() { return kFamilies; }

bool is_known_tower(const Json& root) {
  const auto type = root.find("model_type");
  return type && type->is_string() && std::ranges::any_of(kFamilies, [&](const TowerFamily& family) {
    return is_one_of_names(type->string(), family.hf_name);
  });
}

TowerConfig tower_config_from_hf(const Json& root, const std::string& source, int text_dim) {
  TowerConfig c{.family = nullptr, .source = printable(source)};
  const std::string type(root.at("model_type").string());
  for (const TowerFamily& family : kFamilies)
    if (is_one_of_names(type, family.hf_name)) c.family = &family;
  if (c.family == nullptr)
    throw root.at("model_type").error("the vision tower of '{}' is not supported: supported are {}",
                                      printable(type, 64), known_families(&TowerFamily::hf_name));
  const Json vision = root.at("vision_config");
  // Files leave out the values that transformers has for the family.
  c.dim = json_integer(vision, "hidden_size", type == "gemma3" ? 768 : 1152, 1, kMaxTowerDim);
  c.ffn_dim = json_integer(vision, "intermediate_size", 3072, 1, kMaxTowerDim);
  c.n_layers = json_integer(vision, "num_hidden_layers", 12, 1, kMaxTowerLayers);
  c.n_heads = json_integer(vision, "num_attention_heads", type == "gemma3" ? 12 : 16, 1, kMaxTowerDim);
  c.patch = json_integer(vision, "patch_size", type == "gemma3" ? 16 : 32, 1, kMaxPatch);
  c.image_size = json_integer(vision, "image_size", 224, 1, kMaxImageSide);
  if (json_integer(vision, "num_channels", 3, 1, 1024) != 3)
    throw vision.at("num_channels").error("is not 3, which is not supported");
  const auto eps = vision.find("layer_norm_eps");
  c.eps = eps ? static_cast<float>(eps->number()) : c.family->default_eps;
  c.act = activation_of_tower(vision, c.family->default_act);
  c.merge = merge_of_hf(root, c);
  c.out_dim = text_dim;  // the projector's matrix is checked when it is loaded
  check_sizes(c, text_dim);
  return c;
}

TowerConfig tower_config_from_gguf(const Gguf& file, int text_dim) {
  const Metadata& metadata = file.metadata();
  TowerConfig c{.family = nullptr, .source = printable(metadata.source())};
  if (metadata.find_string("general.architecture").value_or("") != "clip" ||
      !metadata.find_bool("clip.has_vision_encoder").value_or(false))
    throw Error("{}: this file has no vision tower: give the mmproj file of the model", c.source);
  const auto own = metadata.find_string("clip.vision.projector_type");
  const std::string type(own ? *own : metadata.get_string("clip.projector_type"));
  for (const TowerFamily& family : kFamilies)
    if (type == family.gguf_name) c.family = &family;
  if (c.family == nullptr)
    throw metadata.error("clip.projector_type", "'{}' is not supported: supported are {}", printable(type, 64),
                         known_families(&TowerFamily::gguf_name));
  const GgufKeys keys(metadata, "clip.vision");
  c.dim = keys.integer("embedding_length", 1, kMaxTowerDim);
  c.ffn_dim = keys.integer("feed_forward_length", 1, kMaxTowerDim);
  c.n_layers = keys.integer("block_count", 1, kMaxTowerLayers);
  c.n_heads = keys.integer("attention.head_count", 1, kMaxTowerDim);
  c.patch = keys.integer("patch_size", 1, kMaxPatch);
  c.image_size = keys.integer("image_size", 1, kMaxImageSide);
  c.eps = keys.positive_or("attention.layer_norm_epsilon", c.family->default_eps);
  c.act = metadata.find_bool("clip.use_silu").value_or(false) ? Activation::kSilu : c.family->default_act;
  // llama.cpp's converter writes no factor of 4 for Gemma 3.
  c.merge = c.family->merges_by_mean ? keys.integer_or("projector.scale_factor", 4, 1, 64)
                                     : keys.integer("projector.scale_factor", 1, 64);
  c.out_dim = keys.integer("projection_dim", 1, kMaxTowerDim);
  check_sizes(c, text_dim);
  return c;
}

}  // namespace ingot
