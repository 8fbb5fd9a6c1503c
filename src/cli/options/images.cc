#include "cli/options/images.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "io/hub/choice.h"
#include "model/loader.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

// The tower's backend: one device, beside the model's.
VisionOptions tower_options(const RunnerOptions& runner, std::string mmproj, bool check) {
  VisionOptions options{.backend = runner.backend, .mmproj = std::move(mmproj), .check_tensors = check};
  std::string& device = options.backend.device;
  device = chosen_device(device.substr(0, device.find(',')));
  return options;
}

}  // namespace

void add_image_options(CLI::App& app, ImageFlags& flags) {
  auto* mmproj =
      app.add_option("--mmproj", flags.mmproj,
                     "GGUF file with the model's vision tower; default: the mmproj file beside the model, or "
                     "the tower in the model's directory")
          ->check(CLI::ExistingFile);
  app.add_flag("--no-images,--no-mmproj", flags.is_off, "do not load the vision tower: the model reads text only")
      ->excludes(mmproj);
  app.add_option("--image-max-bytes", flags.limits.max_bytes, "maximum size of an image's file, such as 32MiB")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(uint64_t{1024}, uint64_t{1} << 30))
      ->capture_default_str();
  app.add_option("--image-max-pixels", flags.limits.max_pixels, "maximum number of pixels of an image")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 30))
      ->capture_default_str();
  app.add_option("--image-cache", flags.cache_bytes,
                 "maximum memory of encoded images that are kept for the next turn, such as 256MiB; 0: keep none")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
}

std::string find_mmproj(const std::string& model_path) {
  if (!model_path.ends_with(".gguf")) return "";
  const fs::path folder = fs::absolute(model_path).parent_path();
  const auto in_folder = [](const fs::path& place) {
    std::vector<std::string> names;
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(place, failed)) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    const std::string name = projector_of(names);
    return name.empty() ? "" : (place / name).string();
  };
  const std::string beside = in_folder(folder);
  // Repositories keep the parts of a large model in a folder that is named after the quantization.
  return beside.empty() && !quant_label(folder.filename().string()).empty() ? in_folder(folder.parent_path()) : beside;
}

std::unique_ptr<VisionModel> open_tower(const ImageFlags& flags, LoadedModel& model, const RunnerOptions& runner,
                                        bool check_tensors) {
  if (flags.is_off) return nullptr;
  const std::string mmproj = flags.mmproj.empty() ? find_mmproj(model.checkpoint->path()) : flags.mmproj;
  const auto open = [&] {
    return open_vision(*model.checkpoint, model.checkpoint->config(), *model.tokenizer,
                       tower_options(runner, mmproj, check_tensors));
  };
  std::unique_ptr<VisionModel> vision;
  if (!flags.mmproj.empty()) {
    vision = open();
  } else {
    try {
      vision = open();
    } catch (const Error& error) {
      log_warn("the model reads text only, because its vision tower cannot be loaded: {}", error.what());
    }
  }
  if (vision && model.chat) model.chat->read_images(vision->placeholder());
  return vision;
}

ImageFile read_image_file(const std::string& path, const ImageLimits& limits) {
  const std::string text = read_file(path, limits.max_bytes);
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {.bytes = std::make_shared<const std::vector<std::byte>>(bytes, bytes + text.size()),
          .where = path == "-" ? "standard input" : printable(path)};
}

}  // namespace ingot
