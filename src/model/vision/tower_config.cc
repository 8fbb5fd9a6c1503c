#include "model/vision/tower_config.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "io/gguf/gguf.h"
#include "io/json.h"
#include "model/config/gguf_reader.h"
#include "model/vision/names.h"

namespace ingot {
namespace {

constexpr int kMaxTowerDim = 1 << 16, kMaxTowerLayers = 1024, kMaxPatch = 256, kMaxImageSide = 1 << 14;

constexpr TowerLayerNames kSiglipLayer = {.norm1 = "encoder.layers.{}.layer_norm1",
                                          .norm2 = "encoder.layers.{}.layer_norm2",
                                          .q = "encoder.layers.{}.self_attn.q_proj",
                                          .k = "encoder.layers.{}.self_attn.k_proj",
                                          .v = "encoder.layers.{}.self_attn.v_proj",
                                          .qkv = "",
                                          .o = "encoder.layers.{}.self_attn.out_proj",
                                          .gate = "",
                                          .up = "encoder.layers.{}.mlp.fc1",
                                          .down = "encoder.layers.{}.mlp.fc2"};
constexpr TowerLayerNames kQwen3Layer = {.norm1 = "blocks.{}.norm1",
                                         .norm2 = "blocks.{}.norm2",
                                         .q = "",
                                         .k = "",
                                         .v = "",
                                         .qkv = "blocks.{}.attn.qkv",
                                         .o = "blocks.{}.attn.proj",
                                         .gate = "",
                                         .up = "blocks.{}.mlp.linear_fc1",
                                         .down = "blocks.{}.mlp.linear_fc2"};
constexpr TowerLayerNames kQwen25Layer = {.norm1 = "blocks.{}.norm1",
                                          .norm2 = "blocks.{}.norm2",
                                          .q = "",
                                          .k = "",
                                          .v = "",
                                          .qkv = "blocks.{}.attn.qkv",
                                          .o = "blocks.{}.attn.proj",
                                          .gate = "blocks.{}.mlp.gate_proj",
                                          .up = "blocks.{}.mlp.up_proj",
                                          .down = "blocks.{}.mlp.down_proj"};

constexpr TowerLayerNames kGemma4Layer = {.norm1 = "encoder.layers.{}.input_layernorm",
                                          .norm2 = "encoder.layers.{}.pre_feedforward_layernorm",
                                          .q = "encoder.layers.{}.self_attn.q_proj.linear",
                                          .k = "encoder.layers.{}.self_attn.k_proj.linear",
                                          .v = "encoder.layers.{}.self_attn.v_proj.linear",
                                          .qkv = "",
                                          .o = "encoder.layers.{}.self_attn.o_proj.linear",
                                          .gate = "encoder.layers.{}.mlp.gate_proj.linear",
                                          .up = "encoder.layers.{}.mlp.up_proj.linear",
                                          .down = "encoder.layers.{}.mlp.down_proj.linear",
                                          .q_norm = "encoder.layers.{}.self_attn.q_norm",
                                          .k_norm = "encoder.layers.{}.self_attn.k_norm",
                                          .attention_norm = "encoder.layers.{}.post_attention_layernorm",
                                          .ffn_norm = "encoder.layers.{}.post_feedforward_layernorm"};

constexpr TowerFamily kFamilies[] = {
    {.gguf_name = "idefics3",
     .hf_name = "idefics3|smolvlm",
     .processor = "Idefics3ImageProcessor",
     .projector = Projector::kLinear,
     .default_dim = 1152,
     .default_ffn_dim = 3072,
     .default_layers = 12,
     .default_heads = 16,
     .default_patch = 32,
     .hf_layer = kSiglipLayer,
     .hf_prefixes = "model.vision_model.|vision_model.",
     .hf_patches = "embeddings.patch_embedding",
     .hf_positions = "embeddings.position_embedding",
     .hf_post_norm = "post_layernorm"},
    {.gguf_name = "gemma3",
     .hf_name = "gemma3",
     .processor = "Gemma3ImageProcessor",
     .projector = Projector::kGemma,
     .default_dim = 768,
     .default_ffn_dim = 3072,
     .default_layers = 12,
     .default_heads = 12,
     .default_patch = 16,
     .hf_layer = kSiglipLayer,
     .hf_prefixes = "model.vision_tower.vision_model.|vision_tower.vision_model.|model.vision_tower.|vision_tower.",
     .hf_patches = "embeddings.patch_embedding",
     .hf_positions = "embeddings.position_embedding",
     .hf_post_norm = "post_layernorm"},
    {.gguf_name = "qwen3vl_merger",
     .hf_name = "qwen3_vl|qwen3_vl_moe|qwen3_5|qwen3_5_moe",
     .processor = "Qwen2VLImageProcessor",
     .projector = Projector::kQwen,
     .has_rope = true,
     .is_dynamic = true,
     .axes = TowerFamily::Axes::kTurns,
     .n_frames = 2,
     .default_dim = 1152,
     .default_ffn_dim = 4304,
     .default_layers = 27,
     .default_heads = 16,
     .default_patch = 16,
     .hf_layer = kQwen3Layer,
     .hf_prefixes = "model.visual.|visual.",
     .hf_patches = "patch_embed.proj",
     .hf_positions = "pos_embed",
     .hf_post_norm = "merger.norm",
     .hf_merger1 = "merger.linear_fc1",
     .hf_merger2 = "merger.linear_fc2"},
    {.gguf_name = "qwen2.5vl_merger",
     .hf_name = "qwen2_5_vl",
     .processor = "Qwen2VLImageProcessor",
     .projector = Projector::kQwen,
     .norm = NormKind::kRms,
     .has_rope = true,
     .is_dynamic = true,
     .axes = TowerFamily::Axes::kParts,
     .n_frames = 2,
     .default_act = Activation::kSilu,
     .default_dim = 3584,
     .default_ffn_dim = 3420,
     .default_layers = 32,
     .default_heads = 16,
     .default_patch = 14,
     .hf_layer = kQwen25Layer,
     .hf_prefixes = "model.visual.|visual.",
     .hf_patches = "patch_embed.proj",
     .hf_post_norm = "merger.ln_q",
     .hf_merger1 = "merger.mlp.0",
     .hf_merger2 = "merger.mlp.2"},
    {.gguf_name = "gemma4v",
     .hf_name = "gemma4",
     .processor = "Gemma4ImageProcessor",
     .projector = Projector::kGemma4,
     .norm = NormKind::kRms,
     .has_rope = true,
     .is_dynamic = true,
     .is_gemma4 = true,
     .default_dim = 768,
     .default_ffn_dim = 3072,
     .default_layers = 16,
     .default_heads = 12,
     .default_patch = 16,
     .hf_layer = kGemma4Layer,
     .hf_prefixes = "model.vision_tower.|vision_tower.",
     .hf_patches = "patch_embedder.input_proj",
     .hf_positions = "patch_embedder.position_embedding_table"},
};

std::string known_families(const char* TowerFamily::*dialect) {
  std::string all;
  for (const TowerFamily& family : kFamilies)
    for (const std::string& name : split_names(family.*dialect)) all += (all.empty() ? "" : ", ") + name;
  return all;
}

// The shapes that the program needs.
void check_sizes(TowerConfig& c, int text_dim) {
  if (c.head_dim == 0 && c.dim % c.n_heads != 0)
    throw Error("{}: the vision tower's {} heads do not divide its dimension {}", c.source, c.n_heads, c.dim);
  if (c.head_dim == 0) c.head_dim = c.dim / c.n_heads;
  if (c.n_kv_heads == 0) c.n_kv_heads = c.n_heads;
  if (c.n_heads % c.n_kv_heads != 0)
    throw Error("{}: the vision tower's {} heads are no multiple of its {} heads of keys", c.source, c.n_heads,
                c.n_kv_heads);
  if (c.family->has_rope && c.head_dim % 4 != 0)
    throw Error("{}: the vision tower's heads have {} dimensions: its rope needs a multiple of 4", c.source,
                c.head_dim);
  if (!c.is_dynamic()) {
    if (c.image_size / c.patch < 1)
      throw Error("{}: the vision tower's images of {} pixels are smaller than its patches of {}", c.source,
                  c.image_size, c.patch);
    c.side = c.image_size / c.patch;
    if (c.side % c.merge != 0)
      throw Error("{}: the vision tower's {} patches a side cannot be merged {} by {}", c.source, c.side, c.merge,
                  c.merge);
  }
  for (const std::vector<int>* layers : {&c.deepstack_layers, &c.whole_layers})
    for (size_t i = 0; i < layers->size(); ++i)
      if ((*layers)[i] >= c.n_layers || (i > 0 && (*layers)[i] <= (*layers)[i - 1]))
        throw Error("{}: the vision tower's list of layers has {}: expected layers in order, below {}", c.source,
                    (*layers)[i], c.n_layers);
  if (c.out_dim != text_dim)
    throw Error(
        "{}: the vision tower makes vectors of {} numbers, but the text model reads {}: it belongs to another model",
        c.source, c.out_dim, text_dim);
}

// An integer under one of the names, or the first of a list.
int json_integer(const Json& object, const char* names, int64_t fallback, int64_t low, int64_t high) {
  for (const std::string& key : split_names(names)) {
    const auto value = object.find(key);
    if (!value) continue;
    if (!value->is_array()) return static_cast<int>(value->integer(low, high));
    const auto list = value->elements();
    if (list.empty()) throw value->error("is an empty list");
    return static_cast<int>(list[0].integer(low, high));
  }
  return static_cast<int>(fallback);
}

std::vector<int> json_layers(const Json& object, const char* key, std::vector<int> fallback) {
  const auto list = object.find(key);
  if (!list) return fallback;
  std::vector<int> layers;
  for (const Json& layer : list->elements()) layers.push_back(static_cast<int>(layer.integer(0, kMaxTowerLayers)));
  return layers;
}

Activation activation_of_tower(const Json& vision, Activation fallback) {
  const auto own = vision.find("hidden_act"), name = own ? own : vision.find("hidden_activation");
  if (!name) return fallback;
  if (name->string() == "gelu_pytorch_tanh" || name->string() == "gelu_new") return Activation::kGeluTanh;
  if (name->string() == "gelu") return Activation::kGelu;
  if (name->string() == "silu") return Activation::kSilu;
  throw name->error("'{}' is not supported in vision towers: supported are gelu, gelu_pytorch_tanh and silu",
                    printable(name->string(), 64));
}

// The side of a square table of positions.
int side_of_table(const std::string& source, int n) {
  const int side = static_cast<int>(std::lround(std::sqrt(n)));
  if (side * side != n) throw Error("{}: the table of positions has {} rows, which is no square", source, n);
  return side;
}

void read_fixed_sizes(const Json& root, const Json& vision, TowerConfig& c) {
  c.image_size = json_integer(vision, "image_size", 224, 1, kMaxImageSide);
  if (c.family->projector == Projector::kLinear) {
    c.merge = json_integer(root, "scale_factor", 2, 1, 64);
    return;
  }
  const int rows = json_integer(root, "mm_tokens_per_image", 256, 1, 1 << 20), n = c.image_size / c.patch;
  const int per_side = side_of_table(c.source + ": mm_tokens_per_image", rows);
  if (n < per_side) throw Error("{}: mm_tokens_per_image {} does not fit {} patches a side", c.source, rows, n);
  c.merge = n / per_side;
}

void read_gemma4(const Json& root, const Json& vision, TowerConfig& c) {
  c.merge = json_integer(vision, "pooling_kernel_size", 3, 1, 64);
  c.head_dim = json_integer(vision, "head_dim", 64, 1, kMaxTowerDim);
  c.n_kv_heads = json_integer(vision, "num_key_value_heads", c.n_heads, 1, kMaxTowerDim);
  c.side = json_integer(vision, "position_embedding_size", 10240, 1, 1 << 20);
  if (const auto flag = vision.find("standardize")) c.standardizes = flag->boolean();
  if (const auto flag = vision.find("use_clipped_linears")) c.clips = flag->boolean();
  if (const auto text = root.find("text_config"))
    if (const auto which = text->find("use_bidirectional_attention"))
      c.sees_all_in_windows = which->string() == "vision";
}

void read_dynamic_sizes(const Json& vision, TowerConfig& c) {
  c.merge = json_integer(vision, "spatial_merge_size", 2, 1, 64);
  if (json_integer(vision, "temporal_patch_size", 2, 1, 1024) != c.family->n_frames)
    throw vision.at("temporal_patch_size").error("is not {}, which is not supported", c.family->n_frames);
  c.out_dim = json_integer(vision, "out_hidden_size", 3584, 1, kMaxTowerDim);
  if (*c.family->hf_positions != 0) {
    c.side = side_of_table(c.source, json_integer(vision, "num_position_embeddings", 2304, 1, 1 << 24));
    // Qwen3.5's towers have no such layers, and the key is of Qwen3-VL alone.
    if (vision.find("deepstack_visual_indexes"))
      c.deepstack_layers = json_layers(vision, "deepstack_visual_indexes", {});
    return;
  }
  c.whole_layers = json_layers(vision, "fullatt_block_indexes", {7, 15, 23, 31});
  c.window = json_integer(vision, "window_size", 112, 1, kMaxImageSide) / c.merge / c.patch;
  if (c.window < 1) throw vision.at("window_size").error("is smaller than {} patches", c.merge);
}

}  // namespace

std::span<const TowerFamily> tower_families() { return kFamilies; }

bool TowerConfig::is_whole(int layer) const { return window == 0 || std::ranges::count(whole_layers, layer) > 0; }

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
    throw root.at("model_type")
        .error("the vision tower of '{}' is not supported: supported are {}", printable(type, 64),
               known_families(&TowerFamily::hf_name));
  const Json vision = root.at("vision_config");
  const TowerFamily& f = *c.family;
  // Files leave out the values that transformers has for the family.
  c.dim = json_integer(vision, "hidden_size", f.default_dim, 1, kMaxTowerDim);
  c.ffn_dim = json_integer(vision, "intermediate_size", f.default_ffn_dim, 1, kMaxTowerDim);
  c.n_layers = json_integer(vision, "num_hidden_layers|depth", f.default_layers, 1, kMaxTowerLayers);
  c.n_heads = json_integer(vision, "num_attention_heads|num_heads", f.default_heads, 1, kMaxTowerDim);
  c.patch = json_integer(vision, "patch_size", f.default_patch, 1, kMaxPatch);
  if (json_integer(vision, "num_channels|in_channels|in_chans", 3, 1, 1024) != 3)
    throw Error("{}: the vision tower's num_channels is not 3, which is not supported", c.source);
  const auto eps = vision.find(f.is_gemma4 ? "rms_norm_eps" : "layer_norm_eps");
  c.eps = eps ? static_cast<float>(eps->number()) : 1e-6f;
  c.act = activation_of_tower(vision, f.default_act);
  if (f.is_gemma4) c.rope_theta = 100;
  if (const auto rope = vision.find("rope_parameters"))
    if (const auto theta = rope->find("rope_theta")) c.rope_theta = static_cast<float>(theta->number());
  c.out_dim = text_dim;  // the projector's matrix is checked when it is loaded
  if (f.is_gemma4) {
    read_gemma4(root, vision, c);
  } else {
    f.is_dynamic ? read_dynamic_sizes(vision, c) : read_fixed_sizes(root, vision, c);
  }
  check_sizes(c, text_dim);
  return c;
}

namespace {

// Window attention: the last of every n layers sees the whole picture; llama.cpp's window is of 112 pixels.
void read_gguf_windows(const GgufKeys& keys, TowerConfig& c) {
  const int period = keys.integer("n_wa_pattern", 0, kMaxTowerLayers);
  c.window = period == 0 ? 0 : std::max(1, keys.integer_or("window_size", 112, 1, kMaxImageSide) / c.merge / c.patch);
  for (int layer = period - 1; period > 0 && layer < c.n_layers; layer += period) c.whole_layers.push_back(layer);
}

// The tensors say what no key says.
void read_gguf_gemma4(const Gguf& file, const GgufKeys& keys, TowerConfig& c) {
  c.merge = keys.integer_or("projector.scale_factor", 3, 1, 64);
  c.rope_theta = 100;
  c.standardizes = file.find("v.std_scale") != nullptr || file.find("v.std_scale.weight") != nullptr;
  const TensorInfo *table = file.find("v.position_embd.weight"), *norm = file.find("v.blk.0.attn_q_norm.weight");
  if (table == nullptr || norm == nullptr || table->n_dims != 3)
    throw Error("{}: the vision tower lacks its tables of positions or its norms of heads", c.source);
  c.side = static_cast<int>(std::min<uint64_t>(table->shape[1], 1 << 20));
  c.head_dim = static_cast<int>(std::clamp<uint64_t>(norm->shape[0], 1, kMaxTowerDim));
  c.clips = file.find("v.blk.0.attn_q.input_max") != nullptr;
}

void read_gguf_deepstack(const GgufKeys& keys, const Metadata& metadata, TowerConfig& c) {
  const std::string key = keys.name("is_deepstack_layers");
  if (!metadata.contains(key)) return;
  const auto layers = metadata.find_bool_per_layer(key, static_cast<size_t>(c.n_layers));
  for (int layer = 0; layer < c.n_layers; ++layer)
    if ((*layers)[static_cast<size_t>(layer)]) c.deepstack_layers.push_back(layer);
}

}  // namespace

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
  c.eps = keys.positive_or("attention.layer_norm_epsilon", 1e-6f);
  c.act = metadata.find_bool("clip.use_silu").value_or(false) ? Activation::kSilu : c.family->default_act;
  c.out_dim = keys.integer("projection_dim", 1, kMaxTowerDim);
  if (c.family->is_gemma4) {
    read_gguf_gemma4(file, keys, c);
  } else if (!c.is_dynamic()) {
    c.image_size = keys.integer("image_size", 1, kMaxImageSide);
    // llama.cpp's converter writes no factor of 4 for Gemma 3.
    c.merge = c.family->projector == Projector::kGemma ? keys.integer_or("projector.scale_factor", 4, 1, 64)
                                                       : keys.integer("projector.scale_factor", 1, 64);
  } else {
    c.merge = keys.integer_or("spatial_merge_size", 2, 1, 64);
    if (*c.family->hf_positions != 0) {
      c.side = keys.integer("image_size", 1, kMaxImageSide) / c.patch;  // as the converter computes the key
      read_gguf_deepstack(keys, metadata, c);
    } else {
      read_gguf_windows(keys, c);
    }
  }
  check_sizes(c, text_dim);
  return c;
}

WindowOrder window_order(int rows, int columns, const TowerConfig& c) {
  WindowOrder order;
  const int group_rows = rows / c.merge, group_columns = columns / c.merge;
  const int height = c.window > 0 ? c.window : std::max(group_rows, 1),
            width = c.window > 0 ? c.window : std::max(group_columns, 1);
  for (int top = 0; top < group_rows; top += height)
    for (int left = 0; left < group_columns; left += width) {
      const int bottom = std::min(top + height, group_rows), right = std::min(left + width, group_columns);
      for (int row = top; row < bottom; ++row)
        for (int column = left; column < right; ++column) {
          order.groups.push_back(row * group_columns + column);
          for (int y = 0; y < c.merge; ++y)
            for (int x = 0; x < c.merge; ++x)
              order.patches.push_back((row * c.merge + y) * columns + column * c.merge + x);
        }
      order.lengths.push_back((bottom - top) * (right - left) * c.merge * c.merge);
    }
  return order;
}

}  // namespace ingot
