#include "model/vision/tower_shapes.h"

#include <cmath>
#include <deque>

#include "base/error.h"
#include "io/json.h"
#include "model/vision/image_processor.h"
#include "model/vision/tower.h"
#include "quant/fill.h"

namespace ingot {
namespace {

// config.json of the published checkpoints, as far as towers read it.
struct TowerShape {
  const char *name, *config;
};
constexpr TowerShape kTowerShapes[] = {
    {"gemma-3", R"({"model_type": "gemma3", "mm_tokens_per_image": 256, "vision_config": {"hidden_size": 1152,
      "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16, "image_size": 896,
      "patch_size": 14}})"},
    {"qwen3.5", R"({"model_type": "qwen3_5", "vision_config": {"hidden_size": 1152, "intermediate_size": 4304,
      "depth": 27, "num_heads": 16, "patch_size": 16, "num_position_embeddings": 2304, "out_hidden_size": TEXT}})"},
    {"qwen3-vl", R"({"model_type": "qwen3_vl", "vision_config": {"hidden_size": 1152, "intermediate_size": 4304,
      "depth": 27, "num_heads": 16, "patch_size": 16, "num_position_embeddings": 2304, "out_hidden_size": TEXT,
      "deepstack_visual_indexes": [8, 16, 24]}})"},
    {"qwen2.5-vl", R"({"model_type": "qwen2_5_vl", "vision_config": {"hidden_size": 1280, "intermediate_size": 3420,
      "depth": 32, "num_heads": 16, "patch_size": 14, "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31],
      "out_hidden_size": TEXT}})"},
    {"smolvlm-256m", R"({"model_type": "smolvlm", "scale_factor": 4, "vision_config": {"hidden_size": 768,
      "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "image_size": 512,
      "patch_size": 16}})"},
};

// Random tensors under the names of a directory.
class DummyTower final : public WeightSource {
 public:
  explicit DummyTower(const TowerConfig& config) : config_(config) {}
  std::string name() const override { return config_.source; }
  Dialect dialect() const override { return Dialect::kHf; }

  bool find(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    if (!exists(name)) return false;
    const bool is_vector = n_out == 1, is_norm = name.find("norm") != name.npos || name.find("ln_q") != name.npos;
    out = {.format = is_vector ? Format::F32 : Format::BF16, .n_out = n_out, .n_in = n_in};
    const auto n = static_cast<size_t>(n_out) * row_bytes(out.format, n_in);
    kept_.emplace_back(n);
    uint8_t* bytes = kept_.back().data();
    out.data = bytes;
    if (is_vector) {
      std::fill_n(reinterpret_cast<float*>(bytes), n_in, is_norm && name.ends_with(".weight") ? 1.0f : 0.01f);
    } else if (n > 0) {
      fill_random(out.format, ++seed_, bytes, n_out * n_in, 1.0f / std::sqrt(static_cast<float>(n_in)));
    }
    return true;
  }
  void release(const HostTensor& tensor) override {
    std::erase_if(kept_, [&](const std::vector<uint8_t>& bytes) { return bytes.data() == tensor.data; });
  }
  size_t total_bytes() const override { return 0; }

 private:
  // RMS norms have no shift, and no tower here clips.
  bool exists(const std::string& name) const {
    const bool is_norm = name.find("norm") != name.npos || name.find("ln_q") != name.npos;
    return !(is_norm && config_.family->norm == NormKind::kRms && name.ends_with(".bias"));
  }

  const TowerConfig config_;
  std::deque<std::vector<uint8_t>> kept_;
  uint64_t seed_ = 0;
};

const TowerShape& shape_of(const std::string& name) {
  for (const TowerShape& shape : kTowerShapes)
    if (name == shape.name) return shape;
  throw UsageError("unknown tower '{}'; known are {}", printable(name, 64), tower_names());
}

}  // namespace

std::string tower_names() {
  std::string names;
  for (const TowerShape& shape : kTowerShapes) names += (names.empty() ? "" : ", ") + std::string(shape.name);
  return names;
}

std::unique_ptr<VisionModel> vision_of_shape(const std::string& name, int text_dim, const VisionOptions& options) {
  std::string text = shape_of(name).config;
  if (const size_t at = text.find("TEXT"); at != text.npos) text.replace(at, 4, std::to_string(text_dim));
  const JsonDocument document = JsonDocument::parse(text, name);
  const TowerConfig config = tower_config_from_hf(document.root(), "the tower " + name, text_dim);
  ProcessorConfig processor = default_processor(config);
  processor.max_pixels = std::max(processor.max_pixels, int64_t{16'777'216});
  return make_vision(config, processor, std::make_unique<DummyTower>(config), options, {.of_images = 0, .padding = 0},
                     name);
}

double tower_flops(const TowerConfig& c, int n_patches) {
  const double n = n_patches, dim = c.dim;
  const double products = dim * (c.q_dim() + 2.0 * c.kv_dim()) + dim * c.q_dim() +
                          (c.act == Activation::kSilu ? 3 : 2) * dim * c.ffn_dim;
  const double width = dim * c.merge * c.merge, window = width > 0 && c.window > 0 ? c.window * c.merge : 0;
  double flops = 2 * n * dim * c.patch_dim();
  for (int layer = 0; layer < c.n_layers; ++layer)
    flops += 2 * n * products + 4 * n * c.q_dim() * (c.is_whole(layer) ? n : std::min(n, window * window));
  const double n_rows = n / (c.merge * c.merge);
  switch (c.family->projector) {
    case Projector::kLinear: return flops + 2 * n_rows * width * c.out_dim;
    case Projector::kGemma:
    case Projector::kGemma4: return flops + 2 * n_rows * dim * c.out_dim;
    case Projector::kQwen: break;
  }
  return flops + 2 * n_rows * width * (width + c.out_dim) * (1.0 + static_cast<double>(c.deepstack_layers.size()));
}

}  // namespace ingot
