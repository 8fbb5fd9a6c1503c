// The processor of Qwen2-VL and its successors: the picture keeps its ratio, and its size is near that of the file, in
// whole groups of patches, within limits on the number of pixels.
#include "model/vision/qwen_processor.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ingot {
namespace {

constexpr int kMaxRatio = 200;  // the processor's own limit

// As Python rounds: halves to even numbers.
int64_t rounded_to(int n, int factor) {
  return static_cast<int64_t>(std::nearbyint(static_cast<double>(n) / factor)) * factor;
}

}  // namespace

QwenProcessor::QwenProcessor(const TowerConfig& tower, const ProcessorConfig& config, int max_rows)
    : config_(config), answers_in_pixels_(tower.side == 0), factor_(tower.patch * tower.merge) {
  const int64_t group = int64_t{factor_} * factor_;
  if (config_.max_pixels < group || config_.min_pixels > config_.max_pixels)
    throw Error("{}: the processor's images have {} to {} pixels: expected room for a patch group of {}", tower.source,
                config_.min_pixels, config_.max_pixels, group);
  max_rows_ = static_cast<int>(std::min<int64_t>(config_.max_pixels / group, max_rows));
}

int QwenProcessor::max_rows() const {
  return std::max(max_rows_, static_cast<int>(std::sqrt(static_cast<double>(kMaxRatio) * max_rows_)) + 1);
}

BoxUnit QwenProcessor::box_unit() const {
  if (!answers_in_pixels_) return {};
  return {.multiple = factor_,
          .min_pixels = config_.min_pixels,
          .max_pixels = std::min(config_.max_pixels, pixels_of(max_rows_))};
}

PreparedMedia QwenProcessor::prepare(const Picture& picture, const ImageSettings& settings) const {
  if (settings.splits) throw Error("images are not divided for this model: they keep their size");
  const int height = picture.height, width = picture.width;
  const double ratio = static_cast<double>(std::max(height, width)) / std::min(height, width);
  if (ratio > kMaxRatio)
    throw Error("the image has {} x {} pixels: one side is more than {} times the other", width, height, kMaxRatio);
  for (const auto& limit : {settings.min_tokens, settings.max_tokens})
    if (limit && (*limit < 1 || *limit > max_rows_))
      throw Error("{} tokens of an image are out of range: this model's images have 1 to {}", *limit, max_rows_);
  const int64_t most = std::min(config_.max_pixels, pixels_of(settings.max_tokens.value_or(max_rows_)));
  const int64_t least = std::min(settings.min_tokens ? pixels_of(*settings.min_tokens) : config_.min_pixels, most);
  int64_t high = rounded_to(height, factor_), wide = rounded_to(width, factor_);
  const double area = static_cast<double>(height) * width;
  if (high * wide > most) {
    const double shrink = std::sqrt(area / static_cast<double>(most));
    high = std::max<int64_t>(factor_, static_cast<int64_t>(std::floor(height / shrink / factor_)) * factor_);
    wide = std::max<int64_t>(factor_, static_cast<int64_t>(std::floor(width / shrink / factor_)) * factor_);
  } else if (high * wide < least) {
    const double grow = std::sqrt(static_cast<double>(least) / area);
    high = static_cast<int64_t>(std::ceil(height * grow / factor_)) * factor_;
    wide = static_cast<int64_t>(std::ceil(width * grow / factor_)) * factor_;
  }
  const int64_t n_rows = high / factor_ * (wide / factor_);
  if (n_rows > max_rows())
    throw Error("the image has {} x {} pixels, which are {} tokens: at most {}", width, height, n_rows, max_rows_);
  PreparedMedia image;
  image.tiles.push_back(tile_of(resized(picture, static_cast<int>(wide), static_cast<int>(high), config_.filter),
                                config_, static_cast<int>(n_rows)));
  image.n_rows = static_cast<int>(n_rows);
  return image;
}

// All vectors have the same time; the text goes on after the longer side.
void QwenProcessor::set_places(const ImageTile& tile, PromptEmbedding& run) const {
  const int rows = tile.height / factor_, columns = tile.width / factor_;
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < columns; ++column) run.places.push_back({0, row, column});
  run.n_places = std::max(rows, columns);
}

}  // namespace ingot
