// Adds the row shown in docs/add-a-model.md to the architecture table (cmake/tests.cmake), and runs a model of the new
// architecture: the llama golden with renamed keys. Its logits must equal those of transformers.
#include <gtest/gtest.h>

#include <cstring>

#include "base/file.h"
#include "base/json.h"
#include "io/gguf/gguf.h"
#include "io/gguf/writer.h"
#include "model/devices/score.h"

namespace ingot {
namespace {

const std::string kGolden = INGOT_TEST_DATA "/models/llama";

// The bytes of a model that differs from `file` only in the architecture's name.
std::vector<uint8_t> renamed(const Gguf& file, const std::string& from, const std::string& to) {
  GgufWriter writer;
  for (const auto& [key, value, offset] : file.metadata().entries()) {
    if (key == "general.architecture")
      writer.set(key, to);
    else
      writer.set(key.starts_with(from + ".") ? to + std::string(key.substr(from.size())) : std::string(key), value);
  }
  for (const TensorInfo& tensor : file.tensors()) {
    const auto bytes = file.data(tensor);
    writer.add_tensor(tensor.name, tensor.ggml_type, {tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims},
                      std::vector<uint8_t>(bytes.begin(), bytes.end()));
  }
  return writer.to_bytes();
}

// NumPy's format 1.0: magic, version, header length, header, then the little-endian floats.
std::vector<float> read_npy(const std::string& path) {
  const std::string bytes = read_file(path);
  uint16_t header = 0;
  std::memcpy(&header, bytes.data() + 8, 2);
  std::vector<float> values((bytes.size() - 10 - header) / 4);
  std::memcpy(values.data(), bytes.data() + 10 + header, values.size() * 4);
  return values;
}

TEST(AddAModel, TheRowOfThePageRunsAModel) {
  const std::vector<uint8_t> bytes = renamed(Gguf::open(kGolden + ".gguf"), "llama", "helium");
  const auto file = std::make_shared<const Gguf>(Gguf::parse(bytes, "ernie"));
  const Config config = config_from_gguf(*file);
  EXPECT_STREQ(config.arch->gguf_name, "helium");
  EXPECT_STREQ(config.arch->hf_name, "helium");
  EXPECT_EQ(config.arch->hf_rope, RopeLayout::kInterleaved);

  const auto golden = nlohmann::json::parse(read_file(kGolden + ".json"));
  const std::vector<int32_t> tokens = golden["tokens"];
  const std::vector<float> expected = read_npy(kGolden + ".npy");
  const RunnerOptions options{.backend = {.device = "ref"}, .max_logits = 512, .kv_dtype = DType::kF32};
  Ranks runner(config, gguf_source(file), options, nullptr);
  size_t n_compared = 0;
  for_each_logits(runner, tokens, 512, 0, [&](int position, std::span<const float> row) {
    for (size_t i = 0; i < row.size(); ++i, ++n_compared)
      ASSERT_NEAR(row[i], expected[position * row.size() + i], 1e-4) << "position " << position << ", token " << i;
  });
  EXPECT_EQ(n_compared, expected.size());
}

}  // namespace
}  // namespace ingot
