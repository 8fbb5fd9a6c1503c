// The tiny models of tests/data/models with transformers' results for them, for the tests that run these models.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "io/gguf/gguf.h"
#include "model/config/layer_inputs.h"
#include "model/layers/rwkv7.h"
#include "model/devices/score.h"

namespace ingot {

namespace fs = std::filesystem;
inline const fs::path kData = INGOT_TEST_DATA, kModels = kData / "models";

struct Golden {
  std::string name;
  std::vector<int32_t> tokens, greedy;
  std::vector<float> logits;  // [n_tokens, n_vocab]
};

inline bool has_gpu() {
  try {
    create_backend({.device = "cuda"});
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

// NumPy's format 1.0: magic, version, header length, header, then the little-endian floats.
inline std::vector<float> read_npy(const fs::path& path) {
  const std::string bytes = read_file(path.string());
  uint16_t header = 0;
  std::memcpy(&header, bytes.data() + 8, 2);
  std::vector<float> values((bytes.size() - 10 - header) / 4);
  std::memcpy(values.data(), bytes.data() + 10 + header, values.size() * 4);
  return values;
}

inline Golden read_golden(const std::string& name) {
  const auto json = nlohmann::json::parse(read_file((kModels / (name + ".json")).string()));
  return {name, json["tokens"], json["greedy"], read_npy(kModels / json["logits"].get<std::string>())};
}

// The context length for the run if the logits depend on it; 0: the model's own.
inline int n_ctx_of(const std::string& name) {
  const fs::path path = kModels / (name + ".json");
  return fs::exists(path) ? nlohmann::json::parse(read_file(path.string())).value("n_ctx", 0) : 0;
}

// Whether layers need what another layer's device has: its keys or values, or the inputs of all layers.
inline bool is_on_one_device(const std::string& name) {
  const Config c = config_from_gguf(Gguf::open((kModels / (name + ".gguf")).string()));
  return c.part<LayerInputsConfig>().width > 0 || c.part<Rwkv7Config>().head_dim > 0 ||
         std::ranges::any_of(c.layers, [](const LayerConfig& layer) { return layer.kv_layer >= 0; });
}

inline const std::vector<std::string>& golden_names() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(kModels))
      if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
    std::sort(names.begin(), names.end());
    return names;
  }();
  return all;
}

inline Ranks load_golden(const std::string& name, const BackendOptions& backend, int block_size = 16,
                         DType kv_dtype = DType::kF32) {
  auto file = std::make_shared<const Gguf>(Gguf::open((kModels / (name + ".gguf")).string()));
  const Config config = config_from_gguf(*file);
  RunnerOptions options{.backend = backend,
                        .n_ctx = n_ctx_of(name),
                        .max_batch_tokens = 512,
                        .max_logits = 512,
                        .block_size = block_size,
                        .kv_dtype = kv_dtype};
  return Ranks(config, gguf_source(file), options, nullptr);
}

inline std::vector<float> all_logits(Ranks& runner, std::span<const int32_t> tokens, int chunk) {
  std::vector<float> all;
  for_each_logits(runner, tokens, chunk, 0,
                  [&](int, std::span<const float> row) { all.insert(all.end(), row.begin(), row.end()); });
  return all;
}

inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(double{a[i]} - b[i]);
    if (!(difference <= largest)) largest = difference;  // NaN replaces the maximum, and then fails every bound
  }
  return largest;
}

}  // namespace ingot
