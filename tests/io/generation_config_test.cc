// Sampling defaults and pooling in a model's own files: the allowed values of each key, and the refused ones.
#include "io/huggingface/generation_config.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "io/gguf/gguf.h"
#include "io/gguf/writer.h"
#include "io/huggingface/modules.h"
#include "io/refused.h"

namespace ingot {
namespace {

constexpr const char* kModules =
    R"([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
                                     {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])";

class Directory : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(path_ + "/1_Pooling"); }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void put(const char* name, const std::string& text) {
    write_file(path_ + "/" + name, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
  GenerationConfig generation(const std::string& text) {
    put("generation_config.json", text);
    return read_generation_config(HfDirectory(path_));
  }
  std::string refused(const std::string& text) {
    return refusal([&] { generation(text); });
  }
  std::optional<std::string> pooling(const std::string& text) {
    put("1_Pooling/config.json", text);
    put("modules.json", kModules);
    return read_hf_modules(HfDirectory(path_)).pooling;
  }
  const std::string path_ = testing::TempDir() + "generation_config_" + std::to_string(::getpid());
};

TEST_F(Directory, NothingSaidIsNothingSet) {
  const GenerationConfig none = read_generation_config(HfDirectory(path_));
  EXPECT_FALSE(none.temperature || none.top_k || none.top_p || none.min_p || none.typical_p || none.repetition_penalty);
  const GenerationConfig nulls = generation(R"({"temperature": null, "top_k": null, "max_length": 20})");
  EXPECT_FALSE(nulls.temperature || nulls.top_k);
  EXPECT_EQ(read_hf_modules(HfDirectory(path_)).pooling, std::nullopt);
}

TEST_F(Directory, EveryKey) {
  const GenerationConfig c = generation(
      R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.7, "repetition_penalty": 1.05})");
  EXPECT_EQ(c.temperature, 0.6f);
  EXPECT_EQ(c.top_k, 20);
  EXPECT_EQ(c.top_p, 0.9f);
  EXPECT_EQ(c.min_p, 0.1f);
  EXPECT_EQ(c.typical_p, 0.7f);
  EXPECT_EQ(c.repetition_penalty, 1.05f);
}

TEST_F(Directory, NoSamplingIsGreedy) {
  EXPECT_EQ(generation(R"({"do_sample": false, "temperature": 0.6})").temperature, 0.f);
}

TEST_F(Directory, OutOfRangeIsRefusedByName) {
  for (const char* key : {"temperature", "top_p", "min_p", "typical_p", "repetition_penalty", "top_k"}) {
    for (const char* value : {"-1", "1e30", "\"0.5\"", "[1]", "true"}) {
      const std::string message = refused(std::string("{\"") + key + "\": " + value + "}");
      EXPECT_NE(message.find(key), std::string::npos) << key << " " << value << ": " << message;
      EXPECT_NE(message.find("generation_config.json"), std::string::npos) << message;
    }
  }
  EXPECT_NE(refused(R"({"top_p": 0})"), "");
  EXPECT_NE(refused(R"({"do_sample": 1})"), "");
  EXPECT_NE(refused("[]"), "");
}

TEST(GenerationConfigGguf, EveryKeyAndItsRange) {
  GgufWriter writer;
  writer.set("general.architecture", "llama");
  writer.set("general.sampling.temp", 0.25f);
  writer.set("general.sampling.top_k", int32_t{7});
  writer.set("general.sampling.top_p", 0.5f);
  writer.set("general.sampling.min_p", 0.0f);
  writer.set("general.sampling.penalty_repeat", 1.5f);
  writer.set("general.sampling.penalty_last_n", int32_t{-1});
  const std::vector<uint8_t> bytes = writer.to_bytes();
  const Gguf file = Gguf::parse(bytes, "m.gguf");
  const GenerationConfig c = read_generation_config(file.metadata());
  EXPECT_EQ(c.temperature, 0.25f);
  EXPECT_EQ(c.top_k, 7);
  EXPECT_EQ(c.top_p, 0.5f);
  EXPECT_EQ(c.min_p, 0.f);
  EXPECT_EQ(c.repetition_penalty, 1.5f);
  EXPECT_EQ(c.penalty_window, -1);

  writer.set("general.sampling.top_k", int32_t{-3});
  const std::vector<uint8_t> odd = writer.to_bytes();
  const Gguf other = Gguf::parse(odd, "m.gguf");
  EXPECT_NE(refusal([&] { read_generation_config(other.metadata()); }).find("general.sampling.top_k"),
            std::string::npos);
}

TEST_F(Directory, PoolingOfBothGenerations) {
  EXPECT_EQ(
      pooling(
          R"({"word_embedding_dimension": 384, "pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true})"),
      "mean");
  EXPECT_EQ(pooling(R"({"pooling_mode_lasttoken": true})"), "lasttoken");
  EXPECT_EQ(pooling(R"({"embedding_dimension": 384, "pooling_mode": "cls"})"), "cls");
  EXPECT_NE(refusal([&] {
              pooling(R"({"pooling_mode_cls_token": true, "pooling_mode_max_tokens": true})");
            }).find("cls and max"),
            std::string::npos);
  EXPECT_NE(refusal([&] { pooling(R"({"pooling_mode": "middle"})"); }).find("'middle'"), std::string::npos);
  EXPECT_NE(refusal([&] { pooling(R"({"pooling_mode_cls_token": false})"); }), "");
}

}  // namespace
}  // namespace ingot
