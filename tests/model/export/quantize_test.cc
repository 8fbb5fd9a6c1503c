// Checkpoints written as GGUF: the tiny Hugging Face directories against the GGUF files of the same weights from the
// gguf package, and quantized files against the encoders' result for each row.
#include "model/export/quantize.h"

#include <gmock/gmock.h>

#include "base/threads.h"
#include "model/hf_models.h"
#include "io/gguf/gguf.h"
#include "quant/encode.h"

namespace ingot {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class QuantizeTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              fmt::format("quantize_{}", testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }

  QuantizeReport write(const fs::path& from, const QuantizeOptions& options) {
    return write_gguf(gguf_export(open_checkpoint(from.string())), options, path("out.gguf"));
  }
  std::string refused(const fs::path& from, const QuantizeOptions& options) {
    try {
      write(from, options);
    } catch (const Error& error) {
      EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), n_before_)
          << "something was left";
      return error.what();
    }
    ADD_FAILURE() << "was accepted";
    return "";
  }

  fs::path folder_;
  long n_before_ = 0;
};

std::vector<float> values_of(const Gguf& file, const TensorInfo& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.n_elements()));
  decode_row(*tensor.format, file.data(tensor).data(), values.data(), tensor.n_elements());
  return values;
}

// A model of one layer. Only its matrix attn_q, [2, 32] in F32, has special values.
std::string write_one_matrix(const std::string& path, const std::vector<float>& values) {
  GgufWriter writer;
  writer.set("general.architecture", std::string("llama"));
  std::vector<uint8_t> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  writer.add_tensor("blk.0.attn_q.weight", 0, {32, values.size() / 32}, std::move(bytes));
  writer.write(path);
  return path;
}

TEST_F(QuantizeTest, DirectoriesBecomeTheFilesThatTheGgufPackageWrote) {
  for (const std::string& name : hf_names()) {
    SCOPED_TRACE(name);
    write(kHfModels / name, {});
    const Gguf written = Gguf::open(path("out.gguf")), golden = Gguf::open((kModels / (name + ".gguf")).string());
    EXPECT_EQ(written.tensors().size(), golden.tensors().size());
    for (const TensorInfo& expected : golden.tensors()) {
      const TensorInfo* tensor = written.find(expected.name);
      ASSERT_NE(tensor, nullptr) << expected.name;
      EXPECT_EQ(tensor->ggml_type, expected.ggml_type) << expected.name;
      EXPECT_EQ(tensor->shape, expected.shape) << expected.name;
      // The scale of its queries, 3.87: the last bit differs.
      if (name == "muse_glimmer" && expected.name.ends_with("attn_q_norm.weight")) continue;
      EXPECT_THAT(written.data(*tensor), testing::ElementsAreArray(golden.data(expected))) << expected.name;
    }
    for (const Metadata::Entry& entry : golden.metadata().entries()) {
      if (entry.key == "general.name") continue;
      // Keys that converters always write, even with a value that changes nothing.
      if (entry.key.find(".expert_group_") != std::string::npos && render(entry.value, 9) == "1") continue;
      if (entry.key.ends_with(".attention.sliding_window") && render(entry.value, 9) == "0") continue;
      if (entry.key.ends_with(".rope.scaling.original_context_length") &&
          !golden.metadata().contains("phi3.rope.scaling.attn_factor") &&
          golden.metadata().contains("phi3.block_count"))
        continue;
      // The factor on cos and sin, which comes from this key or from attn_factor.
      if (entry.key == "mistral3.rope.scaling.yarn_log_multiplier" &&
          written.metadata().contains("mistral3.rope.scaling.attn_factor"))
        continue;
      const Value* value = written.metadata().find(entry.key);
      ASSERT_NE(value, nullptr) << entry.key;
      const std::string count = render(*value, 1000), expected = render(entry.value, 1000);
      const bool is_list_of_it = expected == "[" + count + ", " + count + ", " + count + ", " + count + "]";
      EXPECT_TRUE(is_list_of_it || count == expected) << entry.key << " is " << count << ", not " << expected;
    }
  }
}

TEST_F(QuantizeTest, WrittenDirectoriesComputeWhatTransformersDid) {
  for (const std::string& name : hf_names()) {
    SCOPED_TRACE(name);
    write(kHfModels / name, {.mix = &find_mix("F32")});
    const Golden golden = read_golden(name);
    const auto checkpoint = open_checkpoint(path("out.gguf"));
    const RunnerOptions options{.backend = {.device = "ref"},
                                .n_ctx = n_ctx_of(name),
                                .max_batch_tokens = 512,
                                .max_logits = 512,
                                .kv_dtype = DType::kF32};
    Ranks converted(checkpoint->config(), checkpoint->weights(), options, nullptr);
    const std::vector<float> logits = all_logits(converted, golden.tokens, 512);
    EXPECT_LT(largest_difference(logits, golden.logits), 1e-4);
    Ranks directory = load_hf(kHfModels / name);
    // In Muse Glimmer's files, the factor of the scores is in a norm: other roundings.
    EXPECT_LT(largest_difference(logits, all_logits(directory, golden.tokens, 512)),
              name == "muse_glimmer" ? 5e-5 : 1e-6);
    EXPECT_EQ(checkpoint->chat_template(), hf_checkpoint((kHfModels / name).string())->chat_template());
    const auto tokenizer = checkpoint->tokenizer(), direct = hf_checkpoint((kHfModels / name).string())->tokenizer();
    EXPECT_EQ(tokenizer->end_tokens(), direct->end_tokens());
    const std::string text = "the cat <|eos|> sat\n\n in 123 hats' \xC3\xA9\xF0\x9F\x99\x82 \xFF";
    for (const bool special : {false, true})
      EXPECT_EQ(tokenizer->encode(text, {.parse_special = special}), direct->encode(text, {.parse_special = special}));
  }
}

// Every matrix of the file equals encode_row of the source's rows, for any number of threads.
TEST_F(QuantizeTest, EncodesEveryRow) {
  const Gguf source = Gguf::open((kModels / "llama_f16.gguf").string());
  for (const int n_threads : {1, 3}) {
    const QuantizeReport report =
        write(kModels / "llama_f16.gguf", {.mix = &find_mix("Q4_K_M"), .n_threads = n_threads});
    const Gguf written = Gguf::open(path("out.gguf"));
    EXPECT_EQ(written.metadata().get_u32("general.file_type"), 15u);
    EXPECT_EQ(written.metadata().get_u32("general.quantization_version"), 2u);
    EXPECT_EQ(report.n_tensors, static_cast<int>(source.tensors().size()));
    EXPECT_FALSE(report.fallbacks.empty());  // rows of 64 and 96
    uint64_t n_bytes = 0;
    for (const TensorInfo& tensor : written.tensors()) {
      n_bytes += tensor.n_bytes;
      const std::vector<float> values = values_of(source, *source.find(tensor.name));
      std::vector<uint8_t> expected(row_bytes(*tensor.format, tensor.n_elements()));
      encode_row(*tensor.format, values.data(), expected.data(), tensor.n_elements());
      EXPECT_THAT(written.data(tensor), testing::ElementsAreArray(expected)) << tensor.name;
      EXPECT_EQ(tensor.format == Format::F32, tensor.n_dims == 1) << tensor.name;
    }
    EXPECT_EQ(report.bytes_after, n_bytes);
  }
}

TEST_F(QuantizeTest, TheOutputMayBeTheInput) {
  fs::copy(kModels / "llama_f16.gguf", path("out.gguf"));
  write(kModels / "llama_f16.gguf", {.mix = &find_mix("Q8_0")});
  const std::string expected = read_file(path("out.gguf"));
  fs::copy(kModels / "llama_f16.gguf", path("out.gguf"), fs::copy_options::overwrite_existing);
  write(path("out.gguf"), {.mix = &find_mix("Q8_0")});
  EXPECT_EQ(read_file(path("out.gguf")), expected);
}

TEST_F(QuantizeTest, SplitFilesBecomeOne) {
  write(kModels / "../gguf/split-00002-of-00003.gguf", {});
  const Gguf written = Gguf::open(path("out.gguf")),
             split = Gguf::open((kModels / "../gguf/split-00001-of-00003.gguf").string());
  EXPECT_EQ(written.n_files(), 1u);
  EXPECT_EQ(written.tensors().size(), split.tensors().size());
  EXPECT_FALSE(written.metadata().contains("split.count"));
}

TEST_F(QuantizeTest, RefusesToQuantizeTwice) {
  const QuantizeOptions options{.mix = &find_mix("Q4_0")};
  EXPECT_THAT(refused(kModels / "llama_q8_0.gguf", options),
              AllOf(HasSubstr("is stored as Q8_0"), HasSubstr("allow-requantize")));
  EXPECT_THAT(refused(kModels / "llama_q8_0.gguf", {.mix = &find_mix("F16")}), HasSubstr("is stored as Q8_0"));
  EXPECT_NO_THROW(write(kModels / "llama_q8_0.gguf", {.mix = &find_mix("Q4_0"), .allow_requantize = true}));
  EXPECT_NO_THROW(write(kModels / "llama_q8_0.gguf", {.mix = &find_mix("F16"), .allow_decode = true}));
  EXPECT_NO_THROW(write(kModels / "llama_q8_0.gguf", {.mix = &find_mix("Q8_0")}));  // nothing is quantized again
}

TEST_F(QuantizeTest, RefusesWhatCannotBeWritten) {
  n_before_ = 1;
  std::vector<float> values(64, 0.5f);
  values[40] = std::numeric_limits<float>::quiet_NaN();
  const std::string in = write_one_matrix(path("in.gguf"), values);
  for (const char* mix : {"Q8_0", "F16", "BF16"})
    EXPECT_THAT(refused(in, {.mix = &find_mix(mix)}),
                AllOf(HasSubstr("'blk.0.attn_q.weight', row 1: nan is not a finite number")))
        << mix;
  values[40] = 1e6f;
  write_one_matrix(in, values);
  EXPECT_THAT(refused(in, {.mix = &find_mix("F16")}),
              AllOf(HasSubstr("row 1: 1000000 is more than F16 can hold"), HasSubstr("use BF16")));
  EXPECT_THAT(refused(in, {.mix = &find_mix("Q4_0")}), HasSubstr("more than Q4_0 can hold"));
  EXPECT_NO_THROW(write(in, {.mix = &find_mix("BF16")}));
}

TEST_F(QuantizeTest, AProgressThatThrowsLeavesNothing) {
  struct Stop {};
  EXPECT_THROW(
      write(kModels / "llama_f16.gguf", {.mix = &find_mix("Q4_0"), .progress = [](size_t, size_t) { throw Stop{}; }}),
      Stop);
  EXPECT_TRUE(fs::is_empty(folder_));
}

void put(std::string& out, int32_t value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); }

ImportanceMatrix importance_of(const std::string& path, const std::map<std::string, std::vector<float>>& entries) {
  std::string bytes;
  put(bytes, static_cast<int32_t>(entries.size()));
  for (const auto& [name, values] : entries) {
    put(bytes, static_cast<int32_t>(name.size()));
    bytes += name;
    put(bytes, 1);
    put(bytes, static_cast<int32_t>(values.size()));
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  write_file(path, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  return ImportanceMatrix::read(path);
}

TEST_F(QuantizeTest, ImportanceReachesItsColumns) {
  n_before_ = 1;
  std::vector<float> weights(64);
  for (int i = 0; i < 64; ++i) weights[i] = static_cast<float>(i % 7) + 1;
  const ImportanceMatrix matrix = importance_of(path("imatrix.dat"), {{"blk.1.attn_q.weight", weights}});
  const QuantizeReport report = write(kModels / "llama_f16.gguf", {.mix = &find_mix("Q4_1"), .importance = &matrix});
  const Gguf source = Gguf::open((kModels / "llama_f16.gguf").string()), written = Gguf::open(path("out.gguf"));
  const TensorInfo& tensor = *written.find("blk.1.attn_q.weight");
  const std::vector<float> values = values_of(source, *source.find(tensor.name));
  std::vector<uint8_t> expected(tensor.n_bytes);
  const size_t row = row_bytes(Format::Q4_1, 64);
  for (size_t r = 0; r * 64 < values.size(); ++r)
    encode_row(Format::Q4_1, &values[r * 64], &expected[r * row], 64, weights.data());
  EXPECT_THAT(written.data(tensor), testing::ElementsAreArray(expected));
  EXPECT_THAT(report.without_importance,
              AllOf(testing::Contains("blk.0.attn_q.weight"), testing::Not(testing::Contains("blk.1.attn_q.weight"))));
  EXPECT_EQ(written.metadata().get_u32("quantize.imatrix.entries_count"), 1u);
  EXPECT_EQ(written.metadata().get_string("quantize.imatrix.file"), "imatrix.dat");
  fs::remove(path("out.gguf"));

  const ImportanceMatrix narrow = importance_of(path("imatrix.dat"), {{"blk.1.attn_q.weight", {1, 2, 3}}});
  EXPECT_THAT(refused(kModels / "llama_f16.gguf", {.mix = &find_mix("Q4_1"), .importance = &narrow}),
              HasSubstr("'blk.1.attn_q.weight' has 3 values, but the tensor of"));
  const ImportanceMatrix other = importance_of(path("imatrix.dat"), {{"layers.0.q", {1, 2, 3}}});
  EXPECT_THAT(
      refused(kModels / "llama_f16.gguf", {.mix = &find_mix("Q4_1"), .importance = &other}),
      AllOf(HasSubstr("none of its 1 entries (the first is 'layers.0.q')"), HasSubstr("belongs to another model")));
}

TEST_F(QuantizeTest, RefusesDirectoriesThatGgufCannotHold) {
  const HfCopy copy("qwen3_tied_yarn");
  copy.edit("config.json", [](auto& json) { json["rope_parameters"]["truncate"] = false; });
  EXPECT_THAT(refused(copy.path(), {}), HasSubstr("'truncate': false"));
  const HfCopy words("qwen2");
  words.edit("tokenizer.json", [](auto& json) {
    json["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"Regex", "x+|[^x]+"}}}, {"behavior", "Isolated"}, {"invert", false}},
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}}}}};
  });
  EXPECT_THAT(refused(words.path(), {}),
              HasSubstr("GGUF has no name (tokenizer.ggml.pre) for this pre-tokenizer: 'x+|[^x]+'"));
}

}  // namespace
}  // namespace ingot
