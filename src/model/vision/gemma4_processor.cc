// The processor of Gemma 4: the picture keeps its ratio, and is as large as its budget of tokens allows.
#include "model/vision/gemma4_processor.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ingot {
namespace {

constexpr int kBudgets[] = {70, 140, 280, 560, 1120};  // tokens of an image that the model was trained with

}  // namespace

Gemma4Processor::Gemma4Processor(const TowerConfig& tower, const ProcessorConfig& config)
    : config_(config), patch_(tower.patch), merge_(tower.merge), sees_all_(tower.sees_all_in_windows) {
  if (std::ranges::count(kBudgets, config_.max_tokens) == 0)
    throw Error("{}: the processor's images have {} tokens: expected 70, 140, 280, 560 or 1120", tower.source,
                config_.max_tokens);
  if (int64_t{max_rows()} * merge_ > tower.side)
    throw Error("{}: an image may have {} patches a side, but the vision tower has {} positions", tower.source,
                max_rows() * merge_, tower.side);
  if (!tower.image_token.empty()) image_ = tower.image_token;
  if (!tower.begin_token.empty()) begin_ = tower.begin_token;
  if (!tower.end_token.empty()) end_ = tower.end_token;
}

int Gemma4Processor::max_rows() const { return config_.max_tokens; }

PreparedMedia Gemma4Processor::prepare(const Picture& picture, const ImageSettings& settings) const {
  if (settings.splits) throw Error("images are not divided for this model: they keep their ratio");
  if (settings.min_tokens) throw Error("the least number of tokens of an image cannot be chosen for this model");
  int budget = config_.max_tokens;
  if (settings.max_tokens) {
    budget = 0;
    for (const int allowed : kBudgets)
      if (allowed <= *settings.max_tokens && allowed <= config_.max_tokens) budget = allowed;
    if (budget == 0)
      throw Error("{} tokens of an image are too few for this model: it needs at least 70", *settings.max_tokens);
  }
  const int width = picture.width, height = picture.height, side = merge_ * patch_;
  const double target = static_cast<double>(budget) * side * side;
  const double factor = std::sqrt(target / (static_cast<double>(width) * height));
  int high = static_cast<int>(std::floor(factor * height / side)),
      wide = static_cast<int>(std::floor(factor * width / side));
  if (high == 0) {
    high = 1, wide = std::min(width / height, budget);
  } else if (wide == 0) {
    wide = 1, high = std::min(height / width, budget);
  }
  PreparedMedia image;
  image.n_rows = high * wide;
  image.tiles.push_back(tile_of(resized(picture, wide * side, high * side, config_.filter), config_, image.n_rows));
  return image;
}

}  // namespace ingot
