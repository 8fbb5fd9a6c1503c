// The tiny models with vision towers of tests/data/vision (tools/goldens/make_vision.py).
#pragma once
#include "model/golden_models.h"
#include "model/loader.h"

namespace ingot {

inline const fs::path kVisionModels = fs::path(INGOT_TEST_DATA) / "vision";

// The pictures of tools/goldens/pictures.py.
inline Picture golden_picture(int64_t width, int64_t height, int64_t seed) {
  Picture picture{static_cast<int>(width), static_cast<int>(height), {}};
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < 3; ++c)
        picture.rgb.push_back(
            static_cast<uint8_t>((x * (3 + c + seed) + y * (5 - c) + ((x * y) >> (c + 2)) + 40 * c + 17 * seed) & 255));
  return picture;
}

inline const std::vector<std::string>& vision_names() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(kVisionModels)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }();
  return all;
}

inline nlohmann::json vision_golden(const std::string& name) {
  return nlohmann::json::parse(read_file((kVisionModels / name / "goldens.json").string()));
}

inline LoadedModel load_vision(std::shared_ptr<const Checkpoint> checkpoint, const std::string& device,
                               const std::string& mmproj, int max_batch_tokens = 200) {
  const BackendOptions backend{.device = device, .n_threads = 1, .activations = device == "cuda" ? "f32" : ""};
  const RunnerOptions options{.backend = backend,
                              .max_batch_tokens = max_batch_tokens,
                              .max_logits = max_batch_tokens,
                              .kv_dtype = DType::kF32};
  return load_model(std::move(checkpoint), options, nullptr,
                    VisionOptions{.backend = backend, .mmproj = mmproj});
}
// The model with the tower of its directory, or of the mmproj file beside it.
inline LoadedModel load_vision(const fs::path& directory, const std::string& device, bool is_gguf) {
  return load_vision(hf_checkpoint(directory.string()), device, is_gguf ? (directory / "mmproj.gguf").string() : "");
}

// The pictures of a prompt of goldens.json.
inline std::vector<PreparedMedia> prepared_images(const VisionModel& vision, const nlohmann::json& prompt) {
  std::vector<PreparedMedia> images;
  for (size_t i = 0; i < prompt["sizes"].size(); ++i) {
    const auto& size = prompt["sizes"][i];
    ImageSettings settings;
    if (prompt["splits"].get<bool>()) settings.splits = true;
    images.push_back(vision.prepare(golden_picture(size[0], size[1], static_cast<int64_t>(i)), settings));
  }
  return images;
}

inline double deviation(const std::vector<float>& values) {
  double sum = 0, squares = 0;
  for (const float value : values) sum += value, squares += double{value} * value;
  const auto n = static_cast<double>(values.size());
  return std::sqrt(std::max(0.0, squares / n - sum / n * (sum / n)));
}

// The largest error allowed, as a share of the deviation of the expected values. The cpu backend computes products in
// fewer bits.
inline double allowed_error(const std::string& device) { return device == "ref" ? 1e-4 : 3e-2; }

}  // namespace ingot
