// Tiny random models as Hugging Face directories (tools/goldens/make_models.py). They give the logits of transformers
// and of the GGUF file with the same weights, for any form of the checkpoint.
#include <gtest/gtest.h>

#include <functional>

#include "captured_log.h"
#include "model/hf_models.h"
#include "model/safetensors_edit.h"

namespace ingot {
namespace {

class HfGoldens : public testing::TestWithParam<std::string> {};

TEST_P(HfGoldens, LogitsEqualTransformers) {
  const Golden golden = read_golden(GetParam());
  Ranks runner = load_hf(kHfModels / golden.name);
  const double error = largest_difference(all_logits(runner, golden.tokens, 512), golden.logits);
  EXPECT_LT(error, 1e-4);
  RecordProperty("architecture", runner.config().arch->hf_name);  // for tools/models_table.py
  RecordProperty("error", fmt::format("{:.1e}", error));
}

TEST_P(HfGoldens, LogitsEqualThoseOfTheGguf) {
  const Golden golden = read_golden(GetParam());
  Ranks hf = load_hf(kHfModels / golden.name), gguf = load_golden(golden.name, {.device = "ref"}, 16, DType::kF32);
  EXPECT_LT(largest_difference(all_logits(hf, golden.tokens, 512), all_logits(gguf, golden.tokens, 512)),
            golden.name == "muse_glimmer" ? 5e-5 : 1e-5);  // the factor of the scores is elsewhere in the file
}

TEST_P(HfGoldens, TokenizerEqualsThatOfTheGguf) {
  const auto hf = hf_checkpoint((kHfModels / GetParam()).string())->tokenizer();
  const auto gguf = open_checkpoint((kModels / (GetParam() + ".gguf")).string())->tokenizer();
  ASSERT_EQ(hf->n_vocab(), gguf->n_vocab());
  for (int32_t id = 0; id < hf->n_vocab(); ++id) {
    EXPECT_EQ(hf->token_text(id), gguf->token_text(id)) << id;
    EXPECT_EQ(hf->type(id), gguf->type(id)) << id;
  }
  EXPECT_EQ(hf->bos(), gguf->bos());
  EXPECT_EQ(hf->eos(), gguf->eos());
  EXPECT_EQ(hf->add_bos(), gguf->add_bos());
  for (const char* text : {"the cat and the hat", "", "in\n\n  on 12 it's \xF0\x9F\x98\x80", "<|bos|>the"})
    EXPECT_EQ(hf->encode(text, {.parse_special = true}), gguf->encode(text, {.parse_special = true})) << text;
}

INSTANTIATE_TEST_SUITE_P(Models, HfGoldens, testing::ValuesIn(hf_names()), [](const auto& i) { return i.param; });

double golden_error(const fs::path& directory, const Golden& golden) {
  Ranks runner = load_hf(directory);
  return largest_difference(all_logits(runner, golden.tokens, 512), golden.logits);
}

// Changes the JSON header of a safetensors file.
void edit_header(const HfCopy& copy, const std::function<void(std::string&)>& change) {
  const std::string bytes = copy.read("model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  std::string header = bytes.substr(8, length);
  const std::string data = bytes.substr(8 + length);
  change(header);
  length = header.size();
  copy.write("model.safetensors", std::string(reinterpret_cast<const char*>(&length), 8) + header + data);
}

// As in transformers, for each model that has an output matrix of its own.
TEST(HfVariants, AnOutputMatrixIsUsedThoughTheConfigTiesIt) {
  int n_models = 0;
  for (const std::string& name : hf_names()) {
    RawTensors tensors;
    if (!fs::exists(kHfModels / name / "model.safetensors")) continue;  // several shards
    read_safetensors((kHfModels / name / "model.safetensors").string(), tensors);
    if (!tensors.contains("lm_head.weight")) continue;
    SCOPED_TRACE(name);
    ++n_models;
    const HfCopy copy(name);
    copy.edit("config.json", [](auto& json) { json["tie_word_embeddings"] = true; });
    const CapturedLog log;
    EXPECT_LT(golden_error(copy.path(), read_golden(name)), 1e-4);
    EXPECT_NE(log.text().find("'tie_word_embeddings'"), std::string::npos);
    if (name != "llama") continue;
    // A copy of the embedding is not used, and causes no warning.
    tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight");
    copy.write("model.safetensors", safetensors_of(tensors));
    const CapturedLog of_copy;
    EXPECT_TRUE(load_hf(copy.path()).weights().model.tied);
    EXPECT_EQ(of_copy.text(), "");
  }
  EXPECT_GT(n_models, 10);
}

TEST(HfVariants, MisalignedDataGivesTheSameLogits) {  // S23
  const HfCopy copy("llama");
  edit_header(copy, [](std::string& header) { header += ' '; });
  EXPECT_LT(golden_error(copy.path(), read_golden("llama")), 1e-4);
}

TEST(HfVariants, NestedTextModelGivesTheSameLogits) {
  const HfCopy copy("llama");
  copy.edit("config.json", [](auto& json) {
    auto outer = nlohmann::ordered_json::object();
    outer["model_type"] = "wrapper";
    outer["text_config"] = json;
    json = outer;
  });
  EXPECT_LT(golden_error(copy.path(), read_golden("llama")), 1e-4);
}

// MLX's converter adds 1 to norms that store their weight minus 1, and changes the convolutions from [n, 1, width] to
// [n, width, 1].
TEST(HfVariants, MlxHasWholeNormsInHybrids) {
  const HfCopy copy("qwen35");
  std::string bytes = copy.read("model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  auto header = nlohmann::ordered_json::parse(bytes.substr(8, length));
  int n_norms = 0, n_convolutions = 0;
  for (auto& [name, tensor] : header.items()) {
    if (name.ends_with("conv1d.weight"))
      tensor["shape"] = {tensor["shape"][0], tensor["shape"][2], 1}, ++n_convolutions;
    if (!name.ends_with("norm.weight") || name.find("linear_attn") != name.npos) continue;
    ++n_norms;
    ASSERT_EQ(tensor["dtype"], "F32");
    for (uint64_t at = tensor["data_offsets"][0]; at < tensor["data_offsets"][1]; at += 4) {
      float value = 0;
      std::memcpy(&value, &bytes[8 + length + at], 4);
      value += 1;
      std::memcpy(&bytes[8 + length + at], &value, 4);
    }
  }
  EXPECT_EQ(n_norms, 4 * 2 + 2 * 2 + 1);
  EXPECT_EQ(n_convolutions, 2);
  std::string changed = header.dump();
  changed.resize((changed.size() + 7) / 8 * 8, ' ');
  const uint64_t new_length = changed.size();
  copy.write("model.safetensors",
             std::string(reinterpret_cast<const char*>(&new_length), 8) + changed + bytes.substr(8 + length));
  EXPECT_LT(golden_error(copy.path(), read_golden("qwen35")), 1e-4);
}

TEST(HfVariants, WrappersPrefixTheTensors) {
  for (const char* with : {"\"language_model.model.", "\"model.language_model."}) {
    const HfCopy copy("llama");
    edit_header(copy, [&](std::string& header) {
      for (size_t at = 0; (at = header.find("\"model.", at)) != header.npos; ++at) header.replace(at, 7, with);
    });
    EXPECT_LT(golden_error(copy.path(), read_golden("llama")), 1e-4) << with;
  }
}

TEST(HfVariants, TiedModelsNeedNoOutputMatrixAndOthersDo) {
  const HfCopy copy("mistral_window");
  copy.edit("config.json", [](auto& json) { json["tie_word_embeddings"] = false; });
  try {
    load_hf(copy.path());
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'lm_head.weight' is missing"), std::string::npos) << error.what();
  }
}

TEST(HfVariants, BiasesThatAreSaidToBeThereMustBe) {
  const HfCopy copy("llama");
  copy.edit("config.json", [](auto& json) { json["attention_bias"] = true; });
  try {
    load_hf(copy.path());
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("config.json sets attention_bias, but layer 0 lacks at least one of"),
              std::string::npos)
        << error.what();
  }
  copy.edit("config.json", [](auto& json) { json["attention_bias"] = false; });
  EXPECT_LT(golden_error(copy.path(), read_golden("llama")), 1e-4);
}

TEST(HfVariants, TheWindowMatters) {
  const HfCopy copy("mistral_window");
  copy.edit("config.json", [](auto& json) { json["sliding_window"] = nullptr; });
  EXPECT_GT(golden_error(copy.path(), read_golden("mistral_window")), 1e-2);
}

TEST(HfVariants, TensorsAreRefusedByName) {
  const HfCopy copy("llama");
  edit_header(copy, [](std::string& header) {
    header.replace(header.find("\"F32\"", header.find("\"model.layers.1.self_attn.k_proj.weight\"")), 5, "\"I32\"");
  });
  try {
    load_hf(copy.path());
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'model.layers.1.self_attn.k_proj.weight' is stored as I32"),
              std::string::npos)
        << error.what();
  }
  copy.edit("config.json", [](auto& json) { json["intermediate_size"] = 64; });  // S10
  try {
    load_hf(copy.path());
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("[96, 32]: expected [64, 32]"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ingot
