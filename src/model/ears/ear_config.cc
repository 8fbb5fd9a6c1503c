#include "model/ears/ear_config.h"

#include <algorithm>

#include "base/error.h"
#include "io/gguf/gguf.h"
#include "io/json.h"
#include "model/config/gguf_reader.h"
#include "model/speech/log_mel.h"

namespace ingot {
namespace {

constexpr int kMaxEarDim = 1 << 14, kMaxEarLayers = 256, kMaxEarRows = 1 << 13, kMaxMerged = 64;

constexpr EarFamily kEarFamilies[] = {
    {.gguf_name = "voxtral",
     .hf_name = "voxtral",
     .projector = EarProjector::kMlp,
     .token = "[AUDIO]",
     .other_token = "",
     .begin = "[BEGIN_AUDIO]",
     .end = "",
     .gguf1 = "mm.a.mlp.1",
     .gguf2 = "mm.a.mlp.2",
     .hf1 = "multi_modal_projector.linear_1",
     .hf2 = "multi_modal_projector.linear_2"},
    {.gguf_name = "ultravox",
     .hf_name = "",
     .projector = EarProjector::kGated,
     .token = "<|audio|>",
     .other_token = "<|reserved_special_token_0|>",
     .begin = "",
     .end = "",
     .gguf1 = "mm.a.mlp.1",
     .gguf2 = "mm.a.mlp.2",
     .hf1 = "",
     .hf2 = ""},
    {.gguf_name = "qwen2a",
     .hf_name = "",
     .projector = EarProjector::kAverage,
     .token = "<|AUDIO|>",
     .other_token = "",
     .begin = "<|audio_bos|>",
     .end = "<|audio_eos|>",
     .gguf1 = "mm.a.fc",
     .gguf2 = "",
     .hf1 = "",
     .hf2 = ""},
};

std::string known_ears(const char* EarFamily::*name) {
  std::string all;
  for (const EarFamily& family : kEarFamilies)
    if (*(family.*name) != 0) all += (all.empty() ? "" : ", ") + std::string(family.*name);
  return all;
}

EarConfig checked(EarConfig c, int text_dim) {
  const SoundEncoderSizes& e = c.encoder;
  if (e.dim % e.n_heads != 0) throw Error("{}: {} heads do not divide {} dimensions", c.source, e.n_heads, e.dim);
  if (c.out_dim != text_dim)
    throw Error("{}: the ears make vectors of {} numbers, but the text model reads {}: they belong to another model",
                c.source, c.out_dim, text_dim);
  return c;
}

// The first of these keys.
int integer_of(const Json& object, std::initializer_list<const char*> names, int fallback, int low, int high) {
  for (const char* name : names)
    if (const auto value = object.find(name)) return static_cast<int>(value->integer(low, high));
  return fallback;
}

}  // namespace

std::span<const EarFamily> ear_families() { return kEarFamilies; }

int EarConfig::window_samples() const { return 2 * encoder.n_rows * kFrameStep; }

bool has_known_ears(const Json& root) {
  const auto type = root.find("model_type");
  return type && type->is_string() && !type->string().empty() && root.find("audio_config") &&
         std::ranges::any_of(kEarFamilies, [&](const EarFamily& f) { return type->string() == f.hf_name; });
}

EarConfig ear_config_from_hf(const Json& root, const std::string& source, int text_dim) {
  EarConfig c{.source = printable(source), .out_dim = text_dim};
  const std::string type(root.at("model_type").string());
  for (const EarFamily& family : kEarFamilies)
    if (type == family.hf_name) c.family = &family;
  if (c.family == nullptr)
    throw root.at("model_type")
        .error("the ears of '{}' are not supported: supported are {}", printable(type, 64),
               known_ears(&EarFamily::hf_name));
  const Json ears = root.at("audio_config");
  SoundEncoderSizes& e = c.encoder;
  // Files leave out the values that transformers has for the family.
  e.dim = integer_of(ears, {"hidden_size", "d_model"}, 1280, 1, kMaxEarDim);
  e.ffn = integer_of(ears, {"intermediate_size", "encoder_ffn_dim"}, 5120, 1, kMaxEarDim * 8);
  e.n_layers = integer_of(ears, {"num_hidden_layers", "encoder_layers"}, 32, 1, kMaxEarLayers);
  e.n_heads = integer_of(ears, {"num_attention_heads", "encoder_attention_heads"}, 20, 1, kMaxEarDim);
  e.n_mels = integer_of(ears, {"num_mel_bins"}, 128, 1, kMaxMels);
  e.n_rows = integer_of(ears, {"max_source_positions"}, 1500, 2, kMaxEarRows);
  if (e.ffn % e.dim != 0 || e.ffn / e.dim > kMaxMerged)
    throw Error("{}: audio_config has intermediate_size {} for rows of {}: expected a multiple", c.source, e.ffn,
                e.dim);
  c.n_merged = e.ffn / e.dim;  // as transformers cuts the rows
  if (e.n_rows % c.n_merged != 0)
    throw Error("{}: max_source_positions {} is no multiple of the {} rows that become one vector", c.source, e.n_rows,
                c.n_merged);
  for (const char* name : {"activation_function", "projector_hidden_act"})
    for (const Json& object : {ears, root})
      if (const auto act = object.find(name); act && act->string() != "gelu")
        throw act->error("'{}' is not supported: expected gelu", printable(act->string(), 64));
  if (const auto scales = ears.find("scale_embedding"); scales && scales->boolean())
    throw scales->error("is not supported: expected false");
  return checked(std::move(c), text_dim);
}

bool gguf_has_ears(const Gguf& file) { return file.metadata().find_bool("clip.has_audio_encoder").value_or(false); }
bool gguf_has_eyes(const Gguf& file) { return file.metadata().find_bool("clip.has_vision_encoder").value_or(false); }

EarConfig ear_config_from_gguf(const Gguf& file, int text_dim) {
  const Metadata& metadata = file.metadata();
  EarConfig c{.source = printable(metadata.source())};
  if (metadata.find_string("general.architecture").value_or("") != "clip" || !gguf_has_ears(file))
    throw Error("{}: this file has no ears: give the mmproj file of the model", c.source);
  const auto own = metadata.find_string("clip.audio.projector_type");
  const std::string type(own ? *own : metadata.get_string("clip.projector_type"));
  for (const EarFamily& family : kEarFamilies)
    if (type == family.gguf_name) c.family = &family;
  if (c.family == nullptr)
    throw metadata.error(own ? "clip.audio.projector_type" : "clip.projector_type",
                         "'{}' is not supported: supported are {}", printable(type, 64),
                         known_ears(&EarFamily::gguf_name));
  const GgufKeys keys(metadata, "clip.audio");
  SoundEncoderSizes& e = c.encoder;
  e.dim = keys.integer("embedding_length", 1, kMaxEarDim);
  e.ffn = keys.integer("feed_forward_length", 1, kMaxEarDim * 8);
  e.n_layers = keys.integer("block_count", 1, kMaxEarLayers);
  e.n_heads = keys.integer("attention.head_count", 1, kMaxEarDim);
  e.n_mels = keys.integer("num_mel_bins", 1, kMaxMels);
  e.eps = keys.positive_or("attention.layer_norm_epsilon", e.eps);
  const TensorInfo* positions = file.find("a.position_embd.weight");
  if (positions == nullptr || positions->n_dims < 2 || positions->shape[1] < 2 || positions->shape[1] > kMaxEarRows)
    throw Error("{}: the table of positions a.position_embd.weight is missing, or has not 2 to {} rows", c.source,
                kMaxEarRows);
  e.n_rows = static_cast<int>(positions->shape[1]);
  c.n_merged =
      c.family->projector == EarProjector::kAverage ? 2 : keys.integer("projector.stack_factor", 1, kMaxMerged);
  if (c.family->projector == EarProjector::kAverage && e.n_rows % 2 != 0)
    throw Error("{}: a.position_embd.weight has {} rows: expected an even number", c.source, e.n_rows);
  c.out_dim = keys.integer_or("projection_dim", text_dim, 1, 1 << 16);
  return checked(std::move(c), text_dim);
}

}  // namespace ingot
