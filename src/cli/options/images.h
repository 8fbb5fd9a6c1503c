// The flags about images of the commands that answer questions, and the model's vision tower that they choose.
#pragma once
#include <memory>
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
  bool is_off = false;
  ImageLimits limits;
  size_t cache_bytes = size_t{256} << 20;  // of encoded images
};

void add_image_options(CLI::App& app, ImageFlags& flags);

// The tower of the model's directory, or of the mmproj file of the flags or beside the model; null if there is none. A
// tower that was not asked for by name and cannot be loaded costs only a warning. The chat template of the model then
// also places images.
std::unique_ptr<VisionModel> open_tower(const ImageFlags& flags, LoadedModel& model, const RunnerOptions& runner,
                                        bool check_tensors);

// The mmproj file beside a GGUF file; empty if there is none.
std::string find_mmproj(const std::string& model_path);

// The bytes of an image file; "-": standard input. Throws Error naming the file.
ImageFile read_image_file(const std::string& path, const ImageLimits& limits);

}  // namespace ingot
