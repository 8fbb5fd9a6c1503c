// The processor of Gemma 3: the picture in the size of the tower, whatever its ratio. With pan and scan, crops of a long
// picture follow the whole image.
#include "model/vision/gemma3_processor.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ingot {

Gemma3Processor::Gemma3Processor(const TowerConfig& tower, const ProcessorConfig& config)
    : config_(config), image_size_(tower.image_size), rows_of_tile_(tower.rows_of_tile()) {
  if (config_.longest_edge != 0 && config_.longest_edge != image_size_)
    throw Error("{}: the processor's size {} is not the vision tower's image_size {}", tower.source,
                config_.longest_edge, image_size_);
}

// Crops along the longer side; none if the picture is nearly square, or if the crops would be too small.
std::vector<Picture> Gemma3Processor::crops_of(const Picture& p) const {
  const bool is_wide = p.width >= p.height;
  const int longer = std::max(p.width, p.height), shorter = std::min(p.width, p.height);
  const double ratio = static_cast<double>(longer) / shorter;
  if (ratio < config_.min_crop_ratio) return {};
  const int wanted = std::min(longer / config_.min_crop, static_cast<int>(std::floor(ratio + 0.5)));
  const int n = std::min(config_.max_crops, std::max(2, wanted));
  const int length = (longer + n - 1) / n;
  if (std::min(length, shorter) < config_.min_crop) return {};
  std::vector<Picture> crops;
  for (int begin = 0; begin < n * length && begin < longer; begin += length) {
    const int size = std::min(length, longer - begin);
    crops.push_back(is_wide ? cropped(p, begin, 0, size, shorter) : cropped(p, 0, begin, shorter, size));
  }
  return crops;
}

PreparedMedia Gemma3Processor::prepare(const Picture& picture, const ImageSettings& settings) const {
  if (settings.min_tokens || settings.max_tokens)
    throw Error("the number of tokens of an image cannot be chosen for this model: its images have one size");
  std::vector<Picture> pictures = {picture};
  if (settings.splits.value_or(config_.splits)) std::ranges::move(crops_of(picture), std::back_inserter(pictures));
  PreparedMedia image;
  for (const Picture& one : pictures)
    image.tiles.push_back(tile_of(resized(one, image_size_, image_size_, config_.filter), config_, rows_of_tile_));
  if (image.tiles.size() > 1) image.tile_rows = 1, image.tile_columns = static_cast<int>(image.tiles.size()) - 1;
  image.n_rows = static_cast<int>(image.tiles.size()) * rows_of_tile_;
  return image;
}

std::string Gemma3Processor::prompt_text(const PreparedMedia& image) const {
  const std::string one = "\n\n<start_of_image>" + repeated(image_token(), rows_of_tile_) + "<end_of_image>\n\n";
  if (image.tiles.size() == 1) return one;
  std::string text = "Here is the original image " + one + " and here are some crops to help you see better ";
  for (size_t i = 1; i < image.tiles.size(); ++i) text += (i > 1 ? " " : "") + one;
  return text;
}

}  // namespace ingot
