// Makes a VisionModel of the files of a checkpoint, in either dialect.
#include "base/error.h"
#include "base/file.h"
#include "io/digest.h"
#include "io/gguf/gguf.h"
#include "io/huggingface/directory.h"
#include "model/config/layer_inputs.h"
#include "model/vision/gemma3_processor.h"
#include "model/vision/gemma4_processor.h"
#include "model/vision/idefics3_processor.h"
#include "model/vision/qwen_processor.h"
#include "model/vision/tower.h"
#include "model/vision/vision_model.h"

namespace ingot {

std::unique_ptr<ImageProcessor> make_processor(const TowerConfig& tower, const ProcessorConfig& config, int max_rows) {
  switch (tower.family->projector) {
    case Projector::kGemma: return std::make_unique<Gemma3Processor>(tower, config);
    case Projector::kGemma4: return std::make_unique<Gemma4Processor>(tower, config);
    case Projector::kQwen: return std::make_unique<QwenProcessor>(tower, config, max_rows);
    case Projector::kLinear: break;
  }
  return std::make_unique<Idefics3Processor>(tower, config);
}

ProcessorConfig default_processor(const TowerConfig& tower) {
  ProcessorConfig config{.longest_edge = tower.image_size, .tile_size = tower.image_size};
  switch (tower.family->projector) {
    case Projector::kGemma: config.filter = Filter::kBilinear; break;
    case Projector::kGemma4:
      while (config.max_tokens > 70 && int64_t{config.max_tokens} * tower.merge > tower.side) config.max_tokens /= 2;
      break;
    case Projector::kLinear: config.filter = Filter::kLanczos, config.splits = true; break;
    case Projector::kQwen:
      config.mean = {0.48145466f, 0.4578275f, 0.40821073f}, config.std = {0.26862954f, 0.26130258f, 0.27577711f};
      config.min_pixels = 56 * 56, config.max_pixels = 28 * 28 * 1280;
  }
  return config;
}

namespace {

// The processor's keys are in a file of their own, or, as transformers 5 writes them, inside processor_config.json.
ProcessorConfig processor_of(const HfDirectory& directory, const TowerConfig& tower) {
  ProcessorConfig config = default_processor(tower);
  if (const auto own = directory.find_document("preprocessor_config.json")) {
    read_processor(own->root(), tower, config);
    return config;
  }
  if (const auto all = directory.find_document("processor_config.json"))
    if (const auto inner = all->root().find("image_processor")) {
      read_processor(*inner, tower, config);
      return config;
    }
  throw Error(
      "{}: the model has a vision tower, but neither preprocessor_config.json nor processor_config.json says "
      "how images are prepared: add the file from the model's repository",
      printable(directory.path()));
}

ProcessorConfig processor_of(const Gguf& file, const TowerConfig& tower) {
  ProcessorConfig config = default_processor(tower);
  const Metadata& metadata = file.metadata();
  const auto read = [&](const char* key, std::array<float, 3>& values, bool is_std) {
    const auto list = metadata.find_f32s(key);
    if (!list) return;
    if (list->size() != 3) throw metadata.error(key, "{} numbers: expected 3, of red, green and blue", list->size());
    for (const float value : *list)
      if (!std::isfinite(value) || (is_std && !(value > 0))) throw metadata.error(key, "{} is out of range", value);
    std::copy(list->begin(), list->end(), values.begin());
  };
  if (tower.family->is_gemma4) return config;  // the tower normalises, whatever the keys say
  read("clip.vision.image_mean", config.mean, false);
  read("clip.vision.image_std", config.std, true);
  if (tower.is_dynamic()) {
    // The limits of the families' published checkpoints.
    const bool has_table = tower.side > 0;
    config.min_pixels = metadata.find_u32("clip.vision.image_min_pixels").value_or(has_table ? 65536 : 3136);
    config.max_pixels = metadata.find_u32("clip.vision.image_max_pixels").value_or(has_table ? 16777216 : 12845056);
    return config;
  }
  const bool has_tiles = tower.family->projector == Projector::kLinear;
  if (const auto edge = metadata.find_u32("clip.vision.preproc_image_size"); edge && has_tiles) {
    if (*edge < 1 || *edge > 1 << 14)
      throw metadata.error("clip.vision.preproc_image_size", "{} is out of range: expected 1 to 16384", *edge);
    config.longest_edge = static_cast<int>(*edge);
  }
  return config;
}

// The texts of the tokens that config.json names by their ids.
void name_tokens(const Json& root, const Tokenizer& tokenizer, TowerConfig& config) {
  const auto name = [&](const char* key, std::string& token) {
    if (const auto id = root.find(key))
      token = tokenizer.token_text(static_cast<int32_t>(id->integer(0, tokenizer.n_vocab() - 1)));
  };
  name("image_token_id", config.image_token);
  name("boi_token_id", config.begin_token);
  name("eoi_token_id", config.end_token);
  if (const auto text = root.find("text_config"))
    if (const auto id = text->find("pad_token_id"))
      config.pad_token = static_cast<int32_t>(id->integer(0, tokenizer.n_vocab() - 1));
}

std::string identity_of(const TowerConfig& tower, const ProcessorConfig& c, const std::string& digest) {
  const std::string values =
      fmt::format("{} {} {} {} {} {}", c.resizes, c.rescales, c.normalizes, c.rescale_factor, fmt::join(c.mean, ","),
                  fmt::join(c.std, ","));
  const std::string sizes = fmt::format("{} {} {} {} {} {} {} {} {} {}", static_cast<int>(c.filter), c.longest_edge,
                                        c.tile_size, c.splits, c.min_crop, c.max_crops, c.min_crop_ratio, c.max_tokens,
                                        c.min_pixels, c.max_pixels);
  return fmt::format("{} {} {} {}", tower.family->gguf_name, digest, values, sizes);
}

VisionTokens tokens_of(const TowerConfig& config, const ProcessorConfig& processor, const Tokenizer& tokenizer,
                       const VisionOptions& options) {
  const std::string name = make_processor(config, processor, options.max_image_tokens)->image_token();
  const auto token = tokenizer.find(name);
  if (!token)
    throw Error("{}: the model's tokenizer lacks the image token {}: the vision tower belongs to another model",
                config.source, name);
  return {.of_images = *token, .padding = config.pad_token >= 0 ? config.pad_token : tokenizer.pad().value_or(0)};
}

}  // namespace

std::unique_ptr<VisionModel> make_vision(const TowerConfig& config, const ProcessorConfig& processor,
                                         std::unique_ptr<WeightSource> source, const VisionOptions& options,
                                         const VisionTokens& tokens, const std::string& digest) {
  auto rules = make_processor(config, processor, options.max_image_tokens);
  if (options.check_tensors) source = checked_source(std::move(source));
  const int max_patches =
      config.is_dynamic() ? rules->max_rows() * config.merge * config.merge : config.side * config.side;
  auto tower = std::make_unique<Tower>(config, std::move(source), options.backend, max_patches);
  return std::make_unique<VisionModel>(std::move(rules), std::move(tower), tokens.of_images, tokens.padding,
                                       identity_of(config, processor, digest));
}

std::unique_ptr<VisionModel> open_vision(const Checkpoint& checkpoint, const Config& text, const Tokenizer& tokenizer,
                                         const VisionOptions& options) {
  if (options.projector || !options.mmproj.empty()) {
    const auto file =
        options.projector ? options.projector : std::make_shared<const Gguf>(Gguf::open(options.mmproj));
    TowerConfig config = tower_config_from_gguf(*file, text.dim);
    // No key says so: Gemma 4's models with layers' own inputs read images as text, the others do not.
    config.sees_all_in_windows = config.family->is_gemma4 && text.part<LayerInputsConfig>().width == 0;
    const auto tower = gguf_checkpoint(file);
    const ProcessorConfig processor = processor_of(*file, config);
    return make_vision(config, processor, tower->weights(), options, tokens_of(config, processor, tokenizer, options),
                       tower->digest());
  }
  const HfDirectory* directory = checkpoint.directory();
  if (directory == nullptr) return nullptr;
  const JsonDocument document = directory->document("config.json");
  if (!document.root().find("vision_config") || !is_known_tower(document.root())) return nullptr;
  TowerConfig config = tower_config_from_hf(document.root(), directory->file("config.json"), text.dim);
  if (config.family->is_gemma4) name_tokens(document.root(), tokenizer, config);
  const ProcessorConfig processor = processor_of(*directory, config);
  return make_vision(config, processor, checkpoint.weights(), options, tokens_of(config, processor, tokenizer, options),
                     checkpoint.digest());
}

}  // namespace ingot
