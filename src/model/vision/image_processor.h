// ImageProcessor: what a family does with a picture before its tower, and how an image appears in a prompt. The numbers
// are those of preprocessor_config.json.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <string>

#include "io/images/picture.h"
#include "model/media/prepared.h"
#include "model/vision/box_unit.h"
#include "model/vision/resample.h"
#include "model/vision/tower_config.h"

namespace ingot {

class Json;

// The numbers of a processor. A family reads only those that it has.
struct ProcessorConfig {
  bool resizes = true, rescales = true, normalizes = true;
  double rescale_factor = 1.0 / 255;
  std::array<float, 3> mean{0.5f, 0.5f, 0.5f}, std{0.5f, 0.5f, 0.5f};
  Filter filter = Filter::kBicubic;
  int longest_edge = 0;               // of the picture that is divided into tiles (Idefics3)
  int tile_size = 0;                  // of the sides of a tile
  bool splits = false;                // into tiles (Idefics3), or crops (Gemma 3)
  int min_crop = 256, max_crops = 4;  // pan and scan (Gemma 3)
  double min_crop_ratio = 1.2;
  int max_tokens = 280;                    // of an image (Gemma 4)
  int64_t min_pixels = 0, max_pixels = 0;  // of a picture that keeps its ratio (Qwen)
};

class ImageProcessor {
 public:
  virtual ~ImageProcessor() = default;
  virtual std::string placeholder() const = 0;  // in the text of a chat template
  virtual std::string image_token() const = 0;  // the text of the token that stands for a vector
  virtual int max_rows() const = 0;             // the most vectors of an image without settings
  virtual BoxUnit box_unit() const { return {}; }
  virtual PreparedMedia prepare(const Picture& picture, const ImageSettings& settings) const = 0;
  virtual std::string prompt_text(const PreparedMedia& image) const = 0;
  // Sets how the text model sees a tile's vectors: their places on its ropes, and whether they see each other.
  virtual void set_places(const ImageTile& /*tile*/, PromptEmbedding& /*run*/) const {}
};

// The processor of the tower's family. max_rows: the most vectors of an image in families that choose its size. Throws
// Error if its numbers do not fit the tower.
std::unique_ptr<ImageProcessor> make_processor(const TowerConfig& tower, const ProcessorConfig& config, int max_rows);
// The numbers that the family has without a file, such as for GGUF.
ProcessorConfig default_processor(const TowerConfig& tower);
// Reads the keys of preprocessor_config.json over the defaults. Throws Error naming the key.
void read_processor(const Json& keys, const TowerConfig& tower, ProcessorConfig& config);

// The picture, whose bytes stand for values that are rescaled and normalised as the config says.
ImageTile tile_of(Picture picture, const ProcessorConfig& config, int n_rows);
// A text many times.
std::string repeated(const std::string& text, int n);

}  // namespace ingot
