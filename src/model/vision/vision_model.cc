#include "model/vision/vision_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "model/config/layer_inputs.h"
#include "model/config/rope_sections.h"
#include "model/vision/image_processor.h"
#include "model/vision/tower.h"

namespace ingot {
namespace {

constexpr uint64_t kTileStep = 0x9E3779B97F4A7C15;  // between the digests of an image's tiles

// The axis of each frequency: 0, 1, 2, 0, 1, 2 and so on, as long as the sections of 1 and 2 last; then 0.
std::vector<int32_t> axes_in_turns(const std::vector<int>& sections, int n) {
  std::vector<int32_t> axes(static_cast<size_t>(n), 0);
  for (int axis = 1; axis < kRopeAxes; ++axis)
    for (int i = axis; i < std::min(n, kRopeAxes * sections[static_cast<size_t>(axis)]); i += kRopeAxes)
      axes[static_cast<size_t>(i)] = axis;
  return axes;
}

std::vector<int32_t> axes_in_parts(const std::vector<int>& sections, int n) {
  std::vector<int32_t> axes;
  for (int axis = 0; axis < kRopeAxes; ++axis)
    axes.insert(axes.end(), static_cast<size_t>(std::max(0, sections[static_cast<size_t>(axis)])), axis);
  axes.resize(static_cast<size_t>(n), 0);
  return axes;
}

}  // namespace

VisionModel::VisionModel(std::unique_ptr<ImageProcessor> processor, std::unique_ptr<Tower> tower, int32_t image_token,
                         int32_t pad_token, std::string identity)
    : Sense(MediaKind::kImage, processor->placeholder(), image_token),
      processor_(std::move(processor)),
      tower_(std::move(tower)),
      pad_token_(pad_token),
      identity_(std::move(identity)) {}

VisionModel::~VisionModel() = default;

const TowerConfig& VisionModel::tower() const { return tower_->config(); }
BoxUnit VisionModel::box_unit() const { return processor_->box_unit(); }
std::string VisionModel::processor() const { return tower_->config().family->processor; }
int VisionModel::max_rows() const { return processor_->max_rows(); }
std::string VisionModel::prompt_text(const PreparedMedia& image) const { return processor_->prompt_text(image); }

void VisionModel::adapt(Config& to) const {
  const TowerConfig& tower = tower_->config();
  Config text = to;  // unchanged if the model does not fit
  text.n_deepstack = static_cast<int>(tower.deepstack_layers.size());
  if (text.n_deepstack > text.n_layers)
    throw Error("{}: the vision tower has vectors for {} layers, but the text model has {}", tower.source,
                text.n_deepstack, text.n_layers);
  text.images_see_all_in_windows = tower.sees_all_in_windows;
  if (text.part<LayerInputsConfig>().width > 0) text.image_row_token = pad_token_;
  if (tower.family->axes == TowerFamily::Axes::kNone) return void(to = std::move(text));
  const std::vector<int>& sections = text.part<RopeSections>().sizes;
  if (sections.size() < kRopeAxes)
    throw Error("{}: the text model's rope has {} sections: images need {}, for time, height and width", tower.source,
                sections.size(), kRopeAxes);
  if (const int sum = std::accumulate(sections.begin(), sections.end(), 0); sum != text.rot_dim / 2)
    throw Error(
        "{}: the sections of the text model's rope add up to {}: expected {}, half of the {} rotated dimensions",
        tower.source, sum, text.rot_dim / 2, text.rot_dim);
  text.rope_axes = tower.family->axes == TowerFamily::Axes::kTurns ? axes_in_turns(sections, text.rot_dim / 2)
                                                                   : axes_in_parts(sections, text.rot_dim / 2);
  to = std::move(text);
}

PreparedMedia VisionModel::prepare(const MediaFile& file, const MediaLimits& limits, std::string_view content) const {
  return prepare(decode_image(*file.bytes, limits.images), file.settings, content);
}

PreparedMedia VisionModel::prepare(const Picture& picture, const ImageSettings& settings,
                                   std::string_view content) const {
  if (picture.width < 1 || picture.height < 1 ||
      picture.rgb.size() != size_t{3} * static_cast<size_t>(picture.width) * static_cast<size_t>(picture.height))
    throw Error("the picture of {} x {} pixels has {} bytes: expected 3 for each pixel", picture.width, picture.height,
                picture.rgb.size());
  PreparedMedia image = processor_->prepare(picture, settings);
  const std::string facts =
      fmt::format("{} {}x{} {} {} {} {} ", identity_, picture.width, picture.height,
                  settings.splits ? (*settings.splits ? "split" : "whole") : "", settings.min_tokens.value_or(0),
                  settings.max_tokens.value_or(0), content.empty() ? "pixels" : content);
  image.digest = media_digest(facts, content.empty() ? picture.rgb : std::span<const uint8_t>());
  return image;
}

EncodedMedia VisionModel::encode(const PreparedMedia& image) {
  EncodedMedia encoded;
  std::vector<SharedFloats> vectors = tower_->encode(image.tiles, encoded.tower_ms);
  for (size_t i = 0; i < image.tiles.size(); ++i) {
    const ImageTile& tile = image.tiles[i];
    if (!are_finite(vectors[i].all())) throw Error("the vision tower gave a number that is not finite for this image");
    // Each tile has a digest of its own.
    const std::array<uint64_t, 2> digest = {image.digest[0] + (i + 1) * kTileStep, image.digest[1]};
    PromptEmbedding& run = encoded.runs.emplace_back(
        PromptEmbedding{.n_rows = tile.n_rows, .digest = digest, .rows = std::move(vectors[i])});
    processor_->set_places(tile, run);
  }
  return encoded;
}

ImageSettings low_detail(const VisionModel& vision) {
  constexpr int kLowDetailTokens = 256;
  for (const char* divides : {"Idefics3ImageProcessor", "SmolVLMImageProcessor", "Gemma3ImageProcessor"})
    if (vision.processor() == divides) return {.splits = false};
  return {.max_tokens = kLowDetailTokens};
}

}  // namespace ingot
