#include "model/speech/speech_shapes.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <vector>

#include "base/error.h"
#include "quant/fill.h"

namespace ingot {
namespace {

struct SpeechShape {
  const char* name;
  int n_mels, dim, n_heads, n_encoder_layers, n_decoder_layers, n_vocab;
};
constexpr SpeechShape kSpeechShapes[] = {
    {"tiny", 80, 384, 6, 4, 4, 51865},           {"base", 80, 512, 8, 6, 6, 51865},
    {"small", 80, 768, 12, 12, 12, 51865},       {"medium", 80, 1024, 16, 24, 24, 51865},
    {"large-v3", 128, 1280, 20, 32, 32, 51866},  {"large-v3-turbo", 128, 1280, 20, 32, 4, 51866},
};
constexpr int kShapeRows = 1500, kShapeContext = 448, kEnd = 50257;

class RandomSpeech final : public WeightSource {
 public:
  std::string name() const override { return "a speech model with random weights"; }
  Dialect dialect() const override { return Dialect::kHf; }
  bool find(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    if (!exists(name)) return false;
    const bool is_vector = n_out == 1;
    out = {.format = is_vector ? Format::F32 : Format::F16, .n_out = n_out, .n_in = n_in};
    const auto n = static_cast<size_t>(n_out) * row_bytes(out.format, n_in);
    uint8_t* bytes = kept_.emplace_back(n).data();
    out.data = bytes;
    const bool is_norm = name.find("norm") != name.npos && name.ends_with(".weight");
    if (is_vector) {
      std::fill_n(reinterpret_cast<float*>(bytes), n_in, is_norm ? 1.0f : 0.01f);
    } else {
      fill_random(out.format, ++seed_, bytes, n_out * n_in, 1.0f / std::sqrt(static_cast<float>(n_in)));
    }
    return true;
  }
  bool find_shape(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    out = {.format = n_out <= 1 ? Format::F32 : Format::F16, .n_out = n_out, .n_in = n_in};
    return exists(name);
  }
  void release(const HostTensor& tensor) override {
    std::erase_if(kept_, [&](const std::vector<uint8_t>& bytes) { return bytes.data() == tensor.data; });
  }
  size_t total_bytes() const override { return 0; }

 private:
  static bool exists(const std::string& name) { return !name.ends_with("k_proj.bias"); }  // keys have no shift

  std::deque<std::vector<uint8_t>> kept_;
  uint64_t seed_ = 0;
};

}  // namespace

std::string speech_shape_names() {
  std::string names;
  for (const SpeechShape& shape : kSpeechShapes) names += (names.empty() ? "" : ", ") + std::string(shape.name);
  return names;
}

SpeechConfig speech_shape(const std::string& name) {
  const auto* shape = std::ranges::find(kSpeechShapes, name, &SpeechShape::name);
  if (shape == std::end(kSpeechShapes))
    throw UsageError("unknown shape '{}'; known are {}", printable(name, 64), speech_shape_names());
  return {.source = name,
          .n_mels = shape->n_mels,
          .n_rows = kShapeRows,
          .dim = shape->dim,
          .n_encoder_layers = shape->n_encoder_layers,
          .n_encoder_heads = shape->n_heads,
          .encoder_ffn = 4 * shape->dim,
          .n_decoder_layers = shape->n_decoder_layers,
          .n_decoder_heads = shape->n_heads,
          .decoder_ffn = 4 * shape->dim,
          .n_ctx = kShapeContext,
          .n_vocab = shape->n_vocab};
}

std::unique_ptr<WeightSource> random_speech() { return std::make_unique<RandomSpeech>(); }

SpeechTokens tokens_of_shape(const SpeechConfig& config) {
  const int32_t first_time = config.n_vocab - kShapeRows - 1;
  return {.start = kEnd + 1,
          .end = kEnd,
          .no_speech = first_time - 2,
          .no_times = first_time - 1,
          .first_time = first_time,
          .n_times = kShapeRows + 1,
          .languages = {}};
}

}  // namespace ingot
