// The flags about images of the commands that answer questions, and the model's vision tower that they choose.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/images/decode.h"
#include "model/vision/image_cache.h"

namespace CLI {
class App;
}

namespace ingot {

struct LoadedModel;
struct RunnerOptions;

struct ImageFlags {
  std::string mmproj;  // empty: found beside the model
  bool is_wanted = false;  // the command shows images to the model
  bool is_off = false;
  int max_tokens = VisionOptions().max_image_tokens;  // of an image, in families that choose its resolution
  ImageLimits limits;
  size_t cache_bytes = size_t{256} << 20;  // of encoded images
};

void add_image_options(CLI::App& app, ImageFlags& flags);

// The options of the model's tower; nothing if the flags forbid it, or the command shows no images.
std::optional<VisionOptions> tower_options(const ImageFlags& flags, const Checkpoint& checkpoint,
                                           const RunnerOptions& runner);
// Makes the model's chat template also place images, if the model has a tower. Call again for another template.
void place_images(LoadedModel& model);

// The bytes of an image file; "-": standard input. Throws Error naming the file.
ImageFile read_image_file(const std::string& path, const ImageLimits& limits);

}  // namespace ingot
