// Every architecture with its matrices in MLX's 4 bits. Three forms have the same logits: the directory, the same
// weights in 32 bits, and those weights as a GGUF file. tests/io and quantized_models_test.cc check that the bits are
// read as mlx writes them. This test checks where each architecture finds its matrices, and how it splits and stacks
// them. Experts are stacked as in mlx-lm.
#include <map>
#include <set>

#include "base/half.h"
#include "model/hf_models.h"
#include "model/export/quantize.h"
#include "model/safetensors_edit.h"

namespace ingot {
namespace {

constexpr int64_t kGroup = 32;

struct Matrix {
  std::vector<int64_t> shape;
  std::vector<float> values;
  int64_t n_in() const { return shape.back(); }
};
using Matrices = std::map<std::string, Matrix>;

Matrix matrix_of(const RawTensor& tensor) {
  Matrix m{.shape = tensor.shape, .values = {}};
  const size_t each = tensor.dtype == "F32" ? 4 : 2;
  for (size_t at = 0; at < tensor.bytes.size(); at += each) {
    uint32_t bits = 0;
    std::memcpy(&bits, &tensor.bytes[at], each);
    const auto half = static_cast<uint16_t>(bits);
    m.values.push_back(each == 4               ? float_from_bits(bits)
                       : tensor.dtype == "F16" ? float_from_f16(half)
                                               : float_from_bf16(half));
  }
  return m;
}

// experts.0.gate_proj and so on, stacked in switch_mlp.gate_proj.
Matrices with_stacked_experts(const Matrices& matrices) {
  const std::pair<const char*, const char*> kMlxNames[] = {
      {"w1.weight", "gate_proj.weight"}, {"w2.weight", "down_proj.weight"}, {"w3.weight", "up_proj.weight"}};
  Matrices out;
  std::map<std::string, std::map<int, const Matrix*>> experts;
  for (const auto& [name, m] : matrices) {
    const size_t at = name.find(".experts.");
    const size_t dot = at == name.npos ? name.npos : name.find('.', at + 9);
    if (dot == name.npos || m.shape.size() != 2) {
      out[name] = m;
      continue;
    }
    std::string last = name.substr(dot + 1);
    for (const auto& [mixtral, mlx] : kMlxNames)
      if (last == mixtral) last = mlx;
    if (name.starts_with("backbone.")) last = last == "up_proj.weight" ? "fc1.weight" : "fc2.weight";
    experts[name.substr(0, at) + ".switch_mlp." + last][std::stoi(name.substr(at + 9))] = &m;
  }
  for (const auto& [name, list] : experts) {
    Matrix& all = out[name];
    all.shape = {static_cast<int64_t>(list.size()), list.at(0)->shape[0], list.at(0)->shape[1]};
    for (const auto& [i, m] : list) all.values.insert(all.values.end(), m->values.begin(), m->values.end());
  }
  return out;
}

// Writes the matrix in four bits, and replaces its values with the decoded ones.
void add_mlx(RawTensors& out, const std::string& module, Matrix& m) {
  std::vector<uint32_t> words(m.values.size() / 8);
  std::vector<float> scales, biases;
  for (size_t at = 0; at < m.values.size(); at += kGroup) {
    const auto [low, high] = std::minmax_element(&m.values[at], &m.values[at] + kGroup);
    const float bias = float_from_f16(f16_from_float(*low)),
                scale = float_from_f16(f16_from_float((*high - *low) / 15));
    for (size_t i = at; i < at + kGroup; ++i) {
      const float code = scale > 0 ? std::clamp(std::round((m.values[i] - bias) / scale), 0.0f, 15.0f) : 0;
      words[i / 8] |= static_cast<uint32_t>(code) << i % 8 * 4;
      m.values[i] = scale * code + bias;
    }
    scales.push_back(scale);
    biases.push_back(bias);
  }
  std::vector<int64_t> shape = m.shape, groups = m.shape;
  shape.back() /= 8;
  groups.back() /= kGroup;
  out[module + ".weight"] = raw_tensor("U32", shape, words);
  out[module + ".scales"] = raw_tensor("F32", groups, scales);
  out[module + ".biases"] = raw_tensor("F32", groups, biases);
}

std::vector<float> logits_of(const std::shared_ptr<const Checkpoint>& checkpoint, const Golden& golden) {
  RunnerOptions options;
  options.backend.device = "ref";
  options.n_ctx = n_ctx_of(golden.name);
  options.max_batch_tokens = options.max_logits = 512;
  options.kv_dtype = DType::kF32;
  Ranks runner(checkpoint->config(), checkpoint->weights(), options, nullptr);
  return all_logits(runner, golden.tokens, 512);
}

class MlxRows : public testing::TestWithParam<std::string> {
 protected:
  MlxRows() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    fs::copy(kHfModels / GetParam(), folder_ / "plain");
  }
  ~MlxRows() override { fs::remove_all(folder_); }

  const fs::path folder_ = fs::path(testing::TempDir()) / ("mlx_rows_" + GetParam());
};

TEST_P(MlxRows, SameWeightsSameLogits) {
  const fs::path plain = folder_ / "plain", mlx = folder_ / "mlx", gguf = folder_ / "model.gguf";
  Matrices matrices;
  for (const auto& [name, tensor] : take_safetensors(plain)) matrices[name] = matrix_of(tensor);
  matrices = with_stacked_experts(matrices);
  RawTensors quantized, decoded;
  int n_quantized = 0;
  for (auto& [name, m] : matrices) {
    const bool is_matrix = m.shape.size() >= 2 && name.ends_with(".weight") && name.find("conv1d") == name.npos;
    if (is_matrix && m.n_in() % kGroup == 0) {
      add_mlx(quantized, name.substr(0, name.size() - 7), m);
      ++n_quantized;
    } else {
      quantized[name] = raw_tensor("F32", m.shape, m.values);
    }
    decoded[name] = raw_tensor("F32", m.shape, m.values);
  }
  fs::copy(plain, mlx);
  const auto write = [](const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  };
  write(plain / "model.safetensors", safetensors_of(decoded));
  write(mlx / "model.safetensors", safetensors_of(quantized));
  auto config = nlohmann::ordered_json::parse(read_file((plain / "config.json").string()));
  config["quantization"] = config["quantization_config"] = {{"group_size", kGroup}, {"bits", 4}, {"mode", "affine"}};
  write(mlx / "config.json", config.dump());

  const Golden golden = read_golden(GetParam());
  const std::vector<float> expected = logits_of(hf_checkpoint(plain.string()), golden);
  EXPECT_LT(largest_difference(logits_of(hf_checkpoint(mlx.string()), golden), expected), 1e-4) << "MLX";
  write_gguf(gguf_export(hf_checkpoint(plain.string())), {.mix = &find_mix("F32")}, gguf.string());
  EXPECT_LT(largest_difference(logits_of(open_checkpoint(gguf.string()), golden), expected), 1e-4) << "GGUF";
  EXPECT_GT(largest_difference(golden.logits, expected), n_quantized > 0 ? 1e-2 : -1.0)
      << "the four bits make a difference";
  const std::set<std::string> kOddRows = {"qwen35", "deepseek3", "glm4_moe_lite", "phi3_long",
                                          "phi3_short", "lfm2", "lfm2_moe", "falcon_h1", "nemotron_h",
                                          "nemotron_h_moe", "falcon_mamba", "jamba", "kimi_linear",
                                          "olmo_hybrid", "recurrent_gemma", "lfm3", "rwkv7"};  // no row has whole groups
  EXPECT_EQ(n_quantized == 0, kOddRows.contains(GetParam()));
  RecordProperty("quantized", std::to_string(n_quantized));
}

INSTANTIATE_TEST_SUITE_P(, MlxRows, testing::ValuesIn(hf_names()), [](const auto& i) { return i.param; });

}  // namespace
}  // namespace ingot
