// The flags about images and recordings of the commands that answer questions, and the model's towers that they choose.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/media/media_cache.h"
#include "model/vision/vision_model.h"

namespace CLI {
class App;
}

namespace ingot {

struct LoadedModel;
struct RunnerOptions;

struct ImageFlags {
  std::string mmproj;      // empty: found beside the model
  bool is_wanted = false;  // the command shows images and recordings to the model
  bool is_off = false;
  int max_tokens = VisionOptions().max_image_tokens;  // of an image, in families that choose its resolution
  MediaLimits limits;
  size_t cache_bytes = size_t{256} << 20;  // of encoded images and recordings
};

void add_image_options(CLI::App& app, ImageFlags& flags);

// The options of the model's towers; nothing if the flags forbid them, or the command shows no images.
std::optional<VisionOptions> tower_options(const ImageFlags& flags, const Checkpoint& checkpoint,
                                           const RunnerOptions& runner);
// The cache for the model's towers; nothing if the model has none.
void open_media_cache(const LoadedModel& model, const ImageFlags& flags, std::optional<MediaCache>& cache);

// The bytes of a file; "-": standard input. Throws Error naming the file.
MediaFile read_media_file(const std::string& path, MediaKind kind, const MediaLimits& limits);

}  // namespace ingot
