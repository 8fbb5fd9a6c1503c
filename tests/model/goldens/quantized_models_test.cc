// Tiny models in the layouts of quantized checkpoints (tools/goldens/make_quantized.py): the logits equal those of
// transformers with the decoded weights; the same weights agree in three containers; shapes that contradict config.json
// are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/hf_models.h"

namespace ingot {
namespace {

using testing::HasSubstr;

const fs::path kQuantized = fs::path(INGOT_TEST_DATA) / "quantized" / "models";

struct Model {
  const char* name;
  const char* mix;
};
constexpr Model kQuantizedModels[] = {
    {"base_bf16", "BF16 16, F32 5"},
    {"mlx_4bit", "F32 5, MLX 4-bit g64 16"},
    {"mlx_mixed",
     "BF16 1, F32 11, MLX 3-bit g64 9, MLX 6-bit g64 1, MLX 8-bit g32 1, MLX MXFP4 1, MLX MXFP8 1, MLX NVFP4 1"},
    {"gptq", "BF16 2, F32 5, GPTQ 4-bit g32 13, GPTQ 4-bit g32 act-order 1"},
    {"awq", "AWQ 4-bit g64 14, BF16 1, F32 11"},
    {"fp8", "BF16 2, F32 5, FP8 E4M3 32x32 14"},
    {"ct_mixed", "BF16 2, F32 5, INT 4-bit g32 12, INT 8-bit g32 2"},
    {"ct_int4", "BF16 1, F32 11, INT 4-bit g32 14"},
    {"ct_fp8", "BF16 1, F32 11, FP8 E4M3 rows 14"},
    {"ct_nvfp4", "BF16 1, F32 11, NVFP4 14"},
    {"modelopt_fp8", "BF16 2, F32 5, FP8 E4M3 14"},
    {"modelopt_nvfp4", "BF16 2, F32 5, ModelOpt NVFP4 14"},
    {"gpt_oss_mxfp4", "BF16 14, F32 21, MXFP4 6"},
};
void PrintTo(const Model& model, std::ostream* out) { *out << model.name; }

Ranks load_quantized(const fs::path& path, const char* device = "ref") {
  const auto checkpoint = open_checkpoint(path.string());
  const RunnerOptions options{
      .backend = {.device = device, .n_threads = 2}, .max_batch_tokens = 64, .max_logits = 64, .kv_dtype = DType::kF32};
  return Ranks(checkpoint->config(), checkpoint->weights(), options, nullptr);
}

std::vector<int32_t> tokens_of(const fs::path& directory) {
  return nlohmann::json::parse(read_file((directory / "tokens.json").string())).get<std::vector<int32_t>>();
}
std::vector<float> expected_of(const fs::path& directory) { return read_npy(directory / "expected.npy"); }

std::vector<float> logits_of(const fs::path& path, const std::vector<int32_t>& tokens, const char* device = "ref") {
  Ranks runner = load_quantized(path, device);
  return all_logits(runner, tokens, 64);
}

double rms_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(squares / static_cast<double>(a.size()));
}

class QuantizedModels : public testing::TestWithParam<Model> {};

TEST_P(QuantizedModels, LogitsEqualTransformers) {
  const fs::path directory = kQuantized / GetParam().name;
  EXPECT_LT(largest_difference(logits_of(directory, tokens_of(directory)), expected_of(directory)), 1e-4);
}

// int8 activations err by 0.5 % of a deviation in each of several products in a row. FP8 weights, which also become
// int8, err by the same amount again. The logits, whose deviation is 2, then err by 0.04 to 0.06, or by 0.02 with bf16
// weights.
TEST_P(QuantizedModels, LogitsOfTheCpuAreNearThem) {
  const fs::path directory = kQuantized / GetParam().name;
  const bool experts =
      std::string_view(GetParam().name) == "gpt_oss_mxfp4";  // an expert that was almost chosen may replace another
  EXPECT_LT(rms_difference(logits_of(directory, tokens_of(directory), "cpu"), expected_of(directory)),
            experts ? 0.3 : 0.1);
}

TEST_P(QuantizedModels, SayWhatTheyAreMadeOf) {
  const fs::path directory = kQuantized / GetParam().name;
  EXPECT_EQ(load_quantized(directory).weights().quant_mix, GetParam().mix);
  const auto checkpoint = open_checkpoint(directory.string());
  const CheckpointFacts facts = checkpoint->facts();
  EXPECT_TRUE(facts.warnings.empty());
  int64_t n_parameters = 0;
  uint64_t n_bytes = 0;
  for (const CheckpointTensor& t : facts.tensors) n_parameters += t.n_elements, n_bytes += t.n_bytes;
  const Ranks runner = load_quantized(directory);
  EXPECT_EQ(n_parameters, runner.weights().n_parameters);
  EXPECT_EQ(n_bytes, runner.weights().file_bytes);
  EXPECT_LT(n_bytes, facts.file_bytes);
}

INSTANTIATE_TEST_SUITE_P(Models, QuantizedModels, testing::ValuesIn(kQuantizedModels),
                         [](const auto& i) { return std::string(i.param.name); });

// The differences come from rounding the weights, not from ingot: to the 8 bits of mantissa of bf16, or to 4 bits a
// weight.
TEST(QuantizedModel, TheSameWeightsAgreeInThreeContainers) {
  const std::vector<int32_t> tokens = tokens_of(kQuantized / "base_bf16");
  const auto f16 = logits_of(kQuantized / "base_f16.gguf", tokens), bf16 = logits_of(kQuantized / "base_bf16", tokens);
  const auto mlx = logits_of(kQuantized / "mlx_4bit", tokens), fp8 = logits_of(kQuantized / "fp8", tokens);
  EXPECT_LT(rms_difference(f16, bf16), 0.02);
  EXPECT_LT(rms_difference(f16, fp8), 0.2);
  EXPECT_LT(rms_difference(f16, mlx), 1.0);
  EXPECT_GT(rms_difference(f16, mlx), 0.05);
  EXPECT_GT(rms_difference(f16, bf16), 1e-4);
}

// A copy of one of the models, which a test may change.
class ModelCopy {
 public:
  explicit ModelCopy(const char* name)
      : path_(fs::path(testing::TempDir()) /
              fmt::format("quantized_{}", testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(path_);
    fs::copy(kQuantized / name, path_);
  }
  ~ModelCopy() { fs::remove_all(path_); }

  const fs::path& path() const { return path_; }
  void edit_config(const std::function<void(nlohmann::ordered_json&)>& change) const {
    auto json = nlohmann::ordered_json::parse(read_file((path_ / "config.json").string()));
    change(json);
    std::ofstream(path_ / "config.json") << json.dump();
  }
  std::string complaint() const {
    try {
      load_quantized(path_);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

 private:
  fs::path path_;
};

TEST(QuantizedModel, ShapesAreCheckedAgainstTheConfig) {  // S10
  const ModelCopy copy("mlx_4bit");
  copy.edit_config([](auto& json) { json["intermediate_size"] = 32; });
  EXPECT_THAT(copy.complaint(),
              HasSubstr("tensor 'model.layers.0.mlp.gate_proj.weight' is [64, 64]: expected [32, 64]"));
  copy.edit_config([](auto& json) { json["intermediate_size"] = 64, json["vocab_size"] = 1000; });
  EXPECT_THAT(copy.complaint(), HasSubstr("tensor 'model.embed_tokens.weight' is [261, 64]: expected [1000, 64]"));
}

TEST(QuantizedModel, AConfigThatSaysNothingOrOtherThings) {
  const ModelCopy copy("mlx_4bit");
  copy.edit_config([](auto& json) { json["quantization"]["bits"] = 8; });
  EXPECT_THAT(copy.complaint(),
              HasSubstr("'lm_head.weight': rows of 32 elements do not fill whole groups: expected a multiple of 64"));
  copy.edit_config([](auto& json) { json.erase("quantization"), json.erase("quantization_config"); });
  EXPECT_THAT(copy.complaint(), HasSubstr("config.json does not describe its quantization"));
  const CheckpointFacts facts = open_checkpoint(copy.path().string())->facts();  // the tensors can still be inspected
  EXPECT_EQ(facts.warnings.size(), 1u);
  EXPECT_THAT(facts.tensors.size(), testing::Gt(40u));
  copy.edit_config([](auto& json) { json["quantization_config"] = {{"quant_method", "bitsandbytes"}}; });
  EXPECT_THAT(copy.complaint(), HasSubstr("'bitsandbytes' are not supported"));
}

TEST(QuantizedModel, TensorsOfAWrapperHaveAPrefix) {
  const ModelCopy copy("gptq");
  std::string bytes = read_file((copy.path() / "model.safetensors").string());
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  auto header = nlohmann::ordered_json::parse(bytes.substr(8, length)), renamed = nlohmann::ordered_json::object();
  for (const auto& [name, value] : header.items()) renamed["language_model." + name] = value;
  const std::string text = renamed.dump(), rest = bytes.substr(8 + length);
  const uint64_t new_length = text.size();
  std::ofstream(copy.path() / "model.safetensors", std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&new_length), 8) << text << rest;
  EXPECT_LT(largest_difference(logits_of(copy.path(), tokens_of(copy.path())), expected_of(copy.path())), 1e-4);
}

}  // namespace
}  // namespace ingot
