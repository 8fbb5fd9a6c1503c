#include "model/vision/image_processor.h"

#include "base/error.h"
#include "io/json.h"

namespace ingot {
namespace {

constexpr int kMaxEdge = 1 << 14;
constexpr int64_t kMaxPixels = int64_t{1} << 32;

std::array<float, 3> three_numbers(const Json& list) {
  const auto numbers = list.elements();
  if (numbers.size() != 3) throw list.error("has {} numbers: expected 3, of red, green and blue", numbers.size());
  return {static_cast<float>(numbers[0].number()), static_cast<float>(numbers[1].number()),
          static_cast<float>(numbers[2].number())};
}

void read_edge(const Json& keys, const char* key, int& edge) {
  const auto size = keys.find(key);
  if (!size || !size->is_object()) return;
  for (const char* name : {"longest_edge", "height"})
    if (const auto value = size->find(name)) edge = static_cast<int>(value->integer(1, kMaxEdge));
}

// Files call the numbers of pixels edges, or, in older files, pixels. The patches must be those of the tower.
void read_pixels(const Json& keys, const TowerConfig& tower, ProcessorConfig& c) {
  const auto read = [&](const Json& object, const char* key, int64_t& value) {
    if (const auto found = object.find(key)) value = found->integer(1, kMaxPixels);
  };
  if (const auto size = keys.find("size"); size && size->is_object()) {
    read(*size, "shortest_edge", c.min_pixels);
    read(*size, "longest_edge", c.max_pixels);
  }
  read(keys, "min_pixels", c.min_pixels);
  read(keys, "max_pixels", c.max_pixels);
  for (const auto& [key, own] : {std::pair{"patch_size", tower.patch}, std::pair{"merge_size", tower.merge},
                                 std::pair{"pooling_kernel_size", tower.merge}})
    if (const auto value = keys.find(key); value && value->integer(0, kMaxPixels) != own)
      throw value->error("is {}, but the vision tower has {}", value->integer(0, kMaxPixels), own);
}

}  // namespace

void read_processor(const Json& keys, const TowerConfig& tower, ProcessorConfig& c) {
  const auto flag = [&](const char* key, bool& value) {
    if (const auto found = keys.find(key)) value = found->boolean();
  };
  flag("do_resize", c.resizes);
  flag("do_rescale", c.rescales);
  flag("do_normalize", c.normalizes);
  flag("do_image_splitting", c.splits);
  flag("do_pan_and_scan", c.splits);
  if (const auto factor = keys.find("rescale_factor")) c.rescale_factor = factor->number();
  // Gemma 4's tower itself takes 8-bit values to -1 to 1.
  if (tower.family->is_gemma4)
    c.normalizes = true;
  else if (const auto mean = keys.find("image_mean"))
    c.mean = three_numbers(*mean);
  if (const auto std = keys.find("image_std"); std && !tower.family->is_gemma4) {
    c.std = three_numbers(*std);
    for (const float value : c.std)
      if (!(value > 0)) throw std->error("{} is no standard deviation: expected numbers above 0", value);
  }
  if (const auto filter = keys.find("resample")) c.filter = static_cast<Filter>(filter->integer(0, 5));
  if (const auto most = keys.find("max_soft_tokens")) c.max_tokens = static_cast<int>(most->integer(1, kMaxEdge));
  if (tower.is_dynamic()) return read_pixels(keys, tower, c);
  read_edge(keys, "size", c.longest_edge);
  read_edge(keys, "max_image_size", c.tile_size);
  if (const auto crop = keys.find("pan_and_scan_min_crop_size"))
    c.min_crop = static_cast<int>(crop->integer(1, kMaxEdge));
  if (const auto crops = keys.find("pan_and_scan_max_num_crops")) c.max_crops = static_cast<int>(crops->integer(2, 64));
  if (const auto ratio = keys.find("pan_and_scan_min_ratio_to_activate")) c.min_crop_ratio = ratio->number();
}

ImageTile tile_of(Picture picture, const ProcessorConfig& config, int n_rows) {
  ImageTile tile{
      .width = picture.width, .height = picture.height, .n_rows = n_rows, .rgb = std::move(picture.rgb), .values = {}};
  tile.rgb.resize((tile.rgb.size() + 3) / 4 * 4);
  for (size_t channel = 0; channel < 3; ++channel)
    for (int v = 0; v < 256; ++v) {
      double value = config.rescales ? v * config.rescale_factor : v;
      if (config.normalizes) value = (value - config.mean[channel]) / config.std[channel];
      tile.values[256 * channel + static_cast<size_t>(v)] = static_cast<float>(value);
    }
  return tile;
}

std::string repeated(const std::string& text, int n) {
  std::string all;
  all.reserve(text.size() * static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

}  // namespace ingot
