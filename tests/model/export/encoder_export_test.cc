// Directories of embedding models and cross-encoders become GGUF files that give the same vectors and scores. The files
// have the keys and tensors that the gguf package wrote for the files of tests/data (tools/goldens/make_encoders.py,
// make_rankers.py).
#include "model/export/gguf_export.h"

#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "base/error.h"
#include "model/embedders.h"
#include "model/export/quantize.h"

namespace ingot {
namespace {

using testing::HasSubstr;

// A copy of a directory, or a file made from a directory; removed after the test.
class Scratch {
 public:
  explicit Scratch(const char* suffix) {
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(test->test_suite_name()) + "_" + test->name() + suffix;
    std::replace(name.begin(), name.end(), '/', '_');
    path = fs::path(testing::TempDir()) / name;
    fs::remove_all(path);
  }
  ~Scratch() { fs::remove_all(path); }
  fs::path path;
};

void convert(const fs::path& directory, const fs::path& out, const QuantizeOptions& options = {}) {
  write_gguf(gguf_export(open_checkpoint(directory.string())), options, out.string());
}

std::set<std::string> tensors_of(const fs::path& path) {
  const Gguf file = Gguf::open(path.string());
  std::set<std::string> names;
  for (const TensorInfo& tensor : file.tensors())
    names.insert(fmt::format("{} {}", tensor.name, fmt::join(tensor.dims(), ",")));
  return names;
}

class EncoderExport : public testing::TestWithParam<const char*> {};

TEST_P(EncoderExport, TheFileGivesTheSameVectors) {
  const fs::path directory = kData / "encoders" / GetParam();
  const auto golden = nlohmann::json::parse(read_file(directory.string() + ".json"));
  const Scratch file(".gguf");
  convert(directory, file.path);
  const auto before = open_embedder(directory), after = open_embedder(file.path);
  EXPECT_EQ(after->pooling(), before->pooling());
  EXPECT_EQ(after->dim(), before->dim());
  std::vector<std::vector<int32_t>> ids;
  for (const std::string text : golden["texts"]) {
    ids.push_back(after->tokenizer().encode(text));
    EXPECT_EQ(ids.back(), before->tokenizer().encode(text)) << text;
  }
  EXPECT_EQ(ids, golden["ids"].get<std::vector<std::vector<int32_t>>>());
  EXPECT_LT(largest_difference(after->embed(ids), before->embed(ids)), 1e-6);
  const auto sequences = golden["sequences"].get<std::vector<std::vector<int32_t>>>();
  EmbedOptions each_token;
  each_token.backend.device = "ref";
  each_token.pooling = "none";
  each_token.normalize = false;
  EXPECT_LT(
      largest_difference(open_embedder(file.path, each_token)->embed(sequences), read_npy(directory.string() + ".npy")),
      1e-4);
}

TEST_P(EncoderExport, TheFileHasLlamaCppsNames) {
  const fs::path directory = kData / "encoders" / GetParam();
  const Scratch file(".gguf");
  convert(directory, file.path);
  const Gguf ours = Gguf::open(file.path.string()), theirs = Gguf::open(directory.string() + ".gguf");
  if (std::string(GetParam()) != "nomic_bert") {  // transformers stores its q, k and v separately
    EXPECT_EQ(tensors_of(file.path), tensors_of(directory.string() + ".gguf"));
  }
  const std::string arch(theirs.metadata().get_string("general.architecture"));
  for (const Metadata::Entry& entry : theirs.metadata().entries())
    if (entry.key.starts_with(arch + ".")) {
      EXPECT_TRUE(ours.metadata().contains(entry.key)) << entry.key;
    }
  EXPECT_EQ(ours.metadata().get_u32(arch + ".pooling_type"), theirs.metadata().get_u32(arch + ".pooling_type"));
  EXPECT_EQ(ours.metadata().get_string("tokenizer.ggml.model"), theirs.metadata().get_string("tokenizer.ggml.model"));
}

TEST_P(EncoderExport, QuantizedVectorsStayNear) {
  const fs::path directory = kData / "encoders" / GetParam();
  const auto golden = nlohmann::json::parse(read_file(directory.string() + ".json"));
  const Scratch file(".gguf");
  convert(directory, file.path, {.mix = &find_mix("Q8_0")});
  const auto before = open_embedder(directory), after = open_embedder(file.path);
  const auto ids = golden["ids"].get<std::vector<std::vector<int32_t>>>();
  const std::vector<float> a = before->embed(ids), b = after->embed(ids);
  for (size_t row = 0; row < ids.size(); ++row) {
    double product = 0;
    for (int i = 0; i < before->dim(); ++i) product += double{a[row * before->dim() + i]} * b[row * before->dim() + i];
    EXPECT_GT(product, 0.99) << row;
  }
}

// docs/models.md describes BF16 weights on the CPU: their activations are rounded too. F16 weights multiply
// integers of 14 bits.
TEST_P(EncoderExport, Bf16OnTheCpuIsWithinOnePerCent) {
  const fs::path directory = kData / "encoders" / GetParam();
  const auto ids =
      nlohmann::json::parse(read_file(directory.string() + ".json"))["ids"].get<std::vector<std::vector<int32_t>>>();
  for (const auto& [type, most] : {std::pair{"BF16", 1e-2}, std::pair{"F16", 2e-4}}) {
    const Scratch file(".gguf");
    convert(directory, file.path, {.mix = &find_mix(type)});
    const std::vector<float> exact = open_embedder(file.path)->embed(ids);
    const auto cpu = open_embedder(file.path, {.backend = {.device = "cpu", .n_threads = 2}});
    const std::vector<float> rounded = cpu->embed(ids);
    double squares = 0;
    for (size_t i = 0; i < exact.size(); ++i) squares += std::pow(double{exact[i]} - rounded[i], 2);
    EXPECT_LT(std::sqrt(squares / static_cast<double>(ids.size())), most) << type;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EncoderExport,
                         testing::Values("bert", "xlm_roberta", "nomic_bert", "modern_bert", "qwen3_embed",
                                         "gemma_embed"),
                         [](const auto& i) { return std::string(i.param); });

class RankerExport : public testing::TestWithParam<const char*> {};

TEST_P(RankerExport, TheFileGivesTheSameScores) {
  const fs::path directory = kData / "rankers" / GetParam();
  const auto golden = nlohmann::json::parse(read_file(directory.string() + ".json"));
  const Scratch file(".gguf");
  convert(directory, file.path);
  EXPECT_EQ(tensors_of(file.path), tensors_of(directory.string() + ".gguf"));
  const auto embedder = open_embedder(file.path);
  ASSERT_TRUE(embedder->ranks());
  const auto scores =
      embedder->score(golden["query"].get<std::string>(), golden["documents"].get<std::vector<std::string>>(), true);
  for (size_t i = 0; i < scores.values.size(); ++i)
    EXPECT_NEAR(scores.values[i], 1 / (1 + std::exp(-golden["logits"][i].get<double>())), 1e-4) << i;
}

INSTANTIATE_TEST_SUITE_P(Models, RankerExport,
                         testing::Values("bert", "xlm_roberta", "modern_bert", "qwen3_score", "qwen3_yes"),
                         [](const auto& i) { return std::string(i.param); });

// ---- properties that GGUF cannot express

std::string export_refusal(const char* model, const char* file,
                           const std::function<void(nlohmann::ordered_json&)>& change) {
  const Scratch copy(""), out(".gguf");
  fs::copy(kData / model, copy.path, fs::copy_options::recursive);
  auto json = nlohmann::ordered_json::parse(read_file((copy.path / file).string()));
  change(json);
  std::ofstream(copy.path / file) << json.dump();
  try {
    convert(copy.path, out.path);
  } catch (const Error& error) {
    return error.what();
  }
  return "was accepted";
}

TEST(EncoderExportRefusals, AreNamed) {
  EXPECT_EQ(export_refusal("encoders/bert", "config.json", [](auto&) {}), "was accepted");
  EXPECT_THAT(export_refusal("encoders/bert", "config.json", [](auto& j) { j["hidden_act"] = "silu"; }),
              HasSubstr("another activation"));
  EXPECT_THAT(
      export_refusal("encoders/modern_bert", "config.json",
                     [](auto& j) {
                       j["layer_types"] = {"full_attention", "full_attention", "sliding_attention", "full_attention"};
                     }),
      HasSubstr("which layers of this model have an attention window"));
  EXPECT_THAT(export_refusal("encoders/bert", "tokenizer.json",
                             [](auto& j) { j["normalizer"]["handle_chinese_chars"] = false; }),
              HasSubstr("GGUF cannot store the BertNormalizer's options"));
  EXPECT_THAT(export_refusal("rankers/modern_bert", "config.json", [](auto& j) { j["classifier_pooling"] = "cls"; }),
              HasSubstr("pooling 'cls'"));
  EXPECT_THAT(export_refusal("encoders/gemma_embed", "2_Dense/config.json",
                             [](auto& j) { j["activation_function"] = "torch.nn.modules.activation.Tanh"; }),
              HasSubstr("a bias, an activation"));
}

}  // namespace
}  // namespace ingot
