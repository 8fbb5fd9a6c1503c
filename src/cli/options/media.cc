#include "cli/options/media.h"

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/file.h"
#include "cli/options/built_in.h"
#include "model/loader.h"

namespace ingot {
void add_image_options(CLI::App& app, ImageFlags& flags) {
  flags.is_wanted = true;
  auto* mmproj =
      app.add_option("--mmproj", flags.mmproj,
                     "GGUF file with the model's vision tower or ears; default: the mmproj file beside the model, or "
                     "those in the model's directory")
          ->check(CLI::ExistingFile);
  app.add_flag("--no-images,--no-mmproj", flags.is_off, "load neither vision tower nor ears: the model reads text only")
      ->excludes(mmproj);
  app.add_option("--image-max-bytes", flags.limits.images.max_bytes, "maximum size of an image's file, such as 32MiB")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(uint64_t{1024}, uint64_t{1} << 30))
      ->capture_default_str();
  app.add_option("--image-max-pixels", flags.limits.images.max_pixels, "maximum number of pixels of an image")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 30))
      ->capture_default_str();
  app.add_option("--image-max-tokens", flags.max_tokens,
                 "maximum number of tokens of an image, for models that keep the size of images (Qwen-VL); larger "
                 "images are scaled down")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app.add_option("--image-cache", flags.cache_bytes,
                 "maximum memory of encoded images and recordings that are kept for the next turn, such as 256MiB; 0: "
                 "keep none")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
}

std::optional<VisionOptions> tower_options(const ImageFlags& flags, const Checkpoint& checkpoint,
                                           const RunnerOptions& runner) {
  if (!flags.is_wanted || flags.is_off) return std::nullopt;
  VisionOptions options = vision_options(checkpoint, runner, flags.mmproj);
  options.max_image_tokens = flags.max_tokens;
  if (flags.mmproj.empty()) options.projector = tower_of_built_in(checkpoint);
  return options;
}

void open_media_cache(const LoadedModel& model, const ImageFlags& flags, std::optional<MediaCache>& cache) {
  if (model.vision || model.ears) cache.emplace(model.vision.get(), model.ears.get(), flags.limits, flags.cache_bytes);
}

MediaFile read_media_file(const std::string& path, MediaKind kind, const MediaLimits& limits) {
  const std::string text =
      read_file(path, kind == MediaKind::kImage ? limits.images.max_bytes : limits.sounds.max_bytes);
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {.bytes = std::make_shared<const std::vector<std::byte>>(bytes, bytes + text.size()),
          .kind = kind,
          .where = path == "-" ? "standard input" : printable(path)};
}

}  // namespace ingot
