// The processor of Idefics3 and SmolVLM: the picture is divided into square tiles, and the whole image follows them in
// the size of a tile.
#include "model/vision/idefics3_processor.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ingot {
namespace {

constexpr int kLargestSide = 4096;  // the processor's own limit
constexpr int kMaxTileRows = 64;    // of an image

struct PictureSize {
  int width = 0, height = 0;
};

// The size with its longer side equal to `edge`; the shorter side is made even.
PictureSize with_longest_edge(int width, int height, int edge) {
  const double ratio = static_cast<double>(width) / height;
  PictureSize size;
  if (width >= height) {
    size = {edge, static_cast<int>(edge / ratio)};
    size.height += size.height % 2;
  } else {
    size = {static_cast<int>(edge * ratio), edge};
    size.width += size.width % 2;
  }
  return {std::max(size.width, 1), std::max(size.height, 1)};
}

PictureSize at_most_largest(PictureSize size) {
  const double ratio = static_cast<double>(size.width) / size.height;
  if (size.width >= size.height && size.width > kLargestSide) {
    size = {kLargestSide, static_cast<int>(kLargestSide / ratio)};
  } else if (size.height > size.width && size.height > kLargestSide) {
    size = {static_cast<int>(kLargestSide * ratio), kLargestSide};
  }
  return {std::max(size.width, 1), std::max(size.height, 1)};
}

int multiple_above(int n, int of) { return (n + of - 1) / of * of; }

// Whole tiles, with about the ratio of the sides.
PictureSize in_tiles(PictureSize size, int tile) {
  const double ratio = static_cast<double>(size.width) / size.height;
  if (size.width >= size.height) {
    size.width = multiple_above(size.width, tile);
    size.height = multiple_above(static_cast<int>(size.width / ratio), tile);
  } else {
    size.height = multiple_above(size.height, tile);
    size.width = multiple_above(static_cast<int>(size.height * ratio), tile);
  }
  return size;
}

}  // namespace

Idefics3Processor::Idefics3Processor(const TowerConfig& tower, const ProcessorConfig& config)
    : config_(config), rows_of_tile_(tower.rows_of_tile()) {
  if (config_.tile_size != tower.image_size)
    throw Error("{}: the processor's max_image_size {} is not the vision tower's image_size {}", tower.source,
                config_.tile_size, tower.image_size);
  if (config_.longest_edge / config_.tile_size > kMaxTileRows)
    throw Error("{}: the processor divides images of {} pixels into tiles of {}: more than {} tiles a side",
                tower.source, config_.longest_edge, config_.tile_size, kMaxTileRows);
}

int Idefics3Processor::max_rows() const {
  const int side = (std::min(config_.longest_edge, kLargestSide) + config_.tile_size - 1) / config_.tile_size;
  return (config_.splits && side > 1 ? side * side + 1 : 1) * rows_of_tile_;
}

PreparedMedia Idefics3Processor::prepare(const Picture& picture, const ImageSettings& settings) const {
  if (settings.min_tokens || settings.max_tokens)
    throw Error("the number of tokens of an image cannot be chosen for this model: its tiles have one size");
  const int tile = config_.tile_size;
  const bool splits = settings.splits.value_or(config_.splits);
  PictureSize size{picture.width, picture.height};
  Picture whole = picture;
  if (config_.resizes) {
    size = at_most_largest(with_longest_edge(size.width, size.height, config_.longest_edge));
    whole = resized(whole, size.width, size.height, config_.filter);
  }
  PreparedMedia image;
  if (splits) {
    size = in_tiles(size, tile);
    if (std::max(size.width, size.height) / tile > kMaxTileRows)
      throw Error("the image has {} x {} pixels, more than {} tiles of {} on a side", picture.width, picture.height,
                  kMaxTileRows, tile);
    whole = resized(whole, size.width, size.height, config_.filter);
    if (size.width > tile || size.height > tile)
      image.tile_rows = size.height / tile, image.tile_columns = size.width / tile;
    for (int row = 0; row < image.tile_rows; ++row)
      for (int column = 0; column < image.tile_columns; ++column)
        image.tiles.push_back(tile_of(cropped(whole, column * tile, row * tile, tile, tile), config_, rows_of_tile_));
  }
  image.tiles.push_back(tile_of(resized(whole, tile, tile, config_.filter), config_, rows_of_tile_));
  image.n_rows = static_cast<int>(image.tiles.size()) * rows_of_tile_;
  return image;
}

std::string Idefics3Processor::prompt_text(const PreparedMedia& image) const {
  const std::string mark = "<fake_token_around_image>", vectors = repeated(image_token(), rows_of_tile_);
  std::string text;
  for (int row = 0; row < image.tile_rows; ++row) {
    for (int column = 0; column < image.tile_columns; ++column)
      text += mark + fmt::format("<row_{}_col_{}>", row + 1, column + 1) + vectors;
    text += "\n";
  }
  if (image.tile_rows > 0) text += "\n";
  return text + mark + "<global-img>" + vectors + mark;
}

}  // namespace ingot
