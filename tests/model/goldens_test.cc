// Tiny random models against Hugging Face transformers (tools/goldens/make_models.py): logits at every position, and 64
// greedy tokens, whatever the chunks in which the prompt goes through.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backend/sampler.h"
#include "base/file.h"
#include "io/gguf.h"
#include "model/score.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
const fs::path kModels = fs::path(INGOT_TEST_DATA) / "models";

struct Golden {
  std::string name;
  std::vector<int32_t> tokens, greedy;
  std::vector<float> logits;  // [n_tokens, n_vocab]
};

// NumPy's format 1.0: magic, version, header length, header, then the little-endian floats.
std::vector<float> read_npy(const fs::path& path) {
  const std::string bytes = read_file(path.string());
  uint16_t header = 0;
  std::memcpy(&header, bytes.data() + 8, 2);
  std::vector<float> values((bytes.size() - 10 - header) / 4);
  std::memcpy(values.data(), bytes.data() + 10 + header, values.size() * 4);
  return values;
}

Golden read_golden(const std::string& name) {
  const auto json = nlohmann::json::parse(read_file((kModels / (name + ".json")).string()));
  return {name, json["tokens"], json["greedy"], read_npy(kModels / json["logits"].get<std::string>())};
}

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kModels))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  std::sort(names.begin(), names.end());
  return names;
}

Ranks load(const std::string& name, const std::string& device, int block_size = 16) {
  auto file = std::make_shared<const Gguf>(Gguf::open((kModels / (name + ".gguf")).string()));
  const Config config = config_from_gguf(*file);
  RunnerOptions options{.backend = {.device = device}, .max_batch_tokens = 512, .max_logits = 512, .block_size = block_size,
                        .kv_dtype = DType::kF32};
  return Ranks(config, gguf_source(file), options, nullptr);
}

std::vector<float> all_logits(Ranks& runner, std::span<const int32_t> tokens, int chunk) {
  std::vector<float> all;
  for_each_logits(runner, tokens, chunk, 0, [&](int, std::span<const float> row) { all.insert(all.end(), row.begin(), row.end()); });
  return all;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(double{a[i]} - b[i]);
    if (!(difference <= largest)) largest = difference;  // NaN is taken, and fails every bound
  }
  return largest;
}

class Goldens : public testing::TestWithParam<std::string> {};

TEST_P(Goldens, RefLogitsEqualTransformers) {
  const Golden golden = read_golden(GetParam());
  Ranks runner = load(golden.name, "ref");
  EXPECT_LT(largest_difference(all_logits(runner, golden.tokens, 512), golden.logits), 1e-4);
}

TEST_P(Goldens, ChunksDoNotChangeLogits) {
  const Golden golden = read_golden(GetParam());
  Ranks runner = load(golden.name, "ref", 4);
  const std::vector<float> whole = all_logits(runner, golden.tokens, 512);
  for (int chunk : {1, 7, 16}) EXPECT_LT(largest_difference(all_logits(runner, golden.tokens, chunk), whole), 1e-5) << chunk;
}

TEST_P(Goldens, RefGreedyEqualsTransformers) {
  const Golden golden = read_golden(GetParam());
  Ranks runner = load(golden.name, "ref");
  std::vector<int32_t> tokens = golden.tokens;
  tokens.insert(tokens.end(), golden.greedy.begin(), golden.greedy.end());
  std::vector<int32_t> greedy;
  for_each_logits(runner, tokens, 1, static_cast<int>(golden.tokens.size()) - 1, [&](int position, std::span<const float> row) {
    if (position + 1 < static_cast<int>(tokens.size())) greedy.push_back(argmax(row));
  });
  EXPECT_EQ(greedy, golden.greedy);
}

INSTANTIATE_TEST_SUITE_P(Models, Goldens, testing::ValuesIn(golden_names()), [](const auto& i) { return i.param; });

}  // namespace
}  // namespace ingot
