// Keys of config.json that are missing, null, or from another family. In each case the logits equal those of
// transformers (tools/goldens/make_config_cases.py), or the model is refused.
#include <gtest/gtest.h>

#include <set>

#include "model/hf_models.h"
#include "io/huggingface/config.h"
#include "model/export/gguf_export.h"
#include "model/export/quantize.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;
constexpr size_t kStride = 23;  // of the logits in the goldens

// Without these keys ingot refuses the model; transformers has default sizes.
const std::set<std::string> kSizes = {"num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size",
                                      "vocab_size", "max_position_embeddings", "model_max_length"};

// Cases in which the file contradicts itself. transformers computes something. ingot refuses the case by name, or uses
// tensors that transformers ignores.
const std::set<std::string> kOtherwise = {
    "deepseek3: -num_experts_per_tok",  // more than the chosen groups have
    "olmoe: +clip_qkv=0.1", "glm4_moe: -attention_bias", "glm4_moe: -use_qk_norm",
    "granite_hybrid: 0mamba_conv_bias", "bamba: 0mamba_conv_bias", "falcon_h1: 0mamba_conv_bias",
    "nemotron_h_moe: -moe_latent_size", "nemotron_h_moe: 0moe_latent_size",
    "cohere2_moe: -num_shared_experts", "gemma4_moe: -enable_moe_block", "ernie4_5_moe: +num_experts_per_tok=1",
    // The list of single layers then belongs to layers of another type.
    "gemma4_dense: -layer_types", "gemma4_dense: 0layer_types", "gemma4_moe: -layer_types", "gemma4_moe: 0layer_types"};
const std::set<std::string> kMayBeMissed = {"-tie_word_embeddings",  // the file has no output matrix
                                            "-rope_parameters/original_max_position_embeddings",
                                            "-rope_scaling/original_max_position_embeddings"};

// "-KEY" removes the key, "-ROPE/KEY" removes a key in an object, "0KEY" makes it null, "+KEY=VALUE" adds it.
Json changed(Json config, const std::string& given) {
  const std::string name = given.substr(1);
  if (const size_t slash = name.find('/'); given[0] == '-' && slash != name.npos) {
    config[name.substr(0, slash)].erase(name.substr(slash + 1));
  } else if (given[0] == '-') {
    config.erase(name);
  } else if (given[0] == '0') {
    config[name] = nullptr;
  } else {
    config[name.substr(0, name.find('='))] = Json::parse(name.substr(name.find('=') + 1));
  }
  return config;
}

class ConfigCases : public testing::TestWithParam<std::string> {};

TEST_P(ConfigCases, LogitsEqualTransformers) {
  if (GetParam() == "rwkv7") GTEST_SKIP() << "transformers does not have the family";
  const Json cases = Json::parse(read_file((fs::path(INGOT_TEST_DATA) / "config_cases.json").string())).at(GetParam());
  const fs::path directory = kHfModels / GetParam();
  const Json config = Json::parse(read_file((directory / "config.json").string()));
  const Golden golden = read_golden(GetParam());
  const auto checkpoint = hf_checkpoint(directory.string());
  int n_compared = 0;
  for (const auto& [name, expected] : cases.items()) {
    const bool is_otherwise = kOtherwise.contains(GetParam() + ": " + name);
    std::vector<float> logits;
    try {
      const JsonDocument document = JsonDocument::parse(changed(config, name).dump(), "config.json");
      const Config parsed = config_from_hf(parse_hf_config(document, GetParam(), hf_defaults_of));
      const RunnerOptions options{.backend = {.device = "ref"}, .n_ctx = n_ctx_of(GetParam()), .max_batch_tokens = 512,
                                  .max_logits = 512, .kv_dtype = DType::kF32};
      Ranks runner(parsed, checkpoint->weights(), options, nullptr);
      logits = all_logits(runner, golden.tokens, 512);
      logits.erase(logits.begin(), logits.end() - parsed.n_vocab);
    } catch (const Error& error) {
      const bool is_known = kSizes.contains(name.substr(1)) || kMayBeMissed.contains(name) || is_otherwise;
      EXPECT_TRUE(is_known) << name << ": " << error.what();
      continue;
    }
    if (is_otherwise) continue;
    const bool same = expected == "same";
    const float* usual = golden.logits.data() + golden.logits.size() - logits.size();
    double worst = 0;
    for (size_t i = 0; i < logits.size(); i += same ? 1 : kStride) {
      const double wanted = same ? usual[i] : expected.at(i / kStride).get<double>();
      worst = std::max(worst, std::abs(logits[i] - wanted) / std::max(1.0, std::abs(wanted)));
    }
    EXPECT_LT(worst, 2e-4) << name << (same ? " changes nothing" : "");
    ++n_compared;
  }
  EXPECT_GT(n_compared, 20);
}

// In GGUF files, rope rotates neighbouring elements together. So `convert` must interleave the rows of queries and
// latents if the model rotates by halves.
TEST(Convert, KeepsHowLatentsTurn) {
  for (const char* name : {"deepseek3", "glm4_moe_lite"}) {
    const Json cases = Json::parse(read_file((fs::path(INGOT_TEST_DATA) / "config_cases.json").string())).at(name);
    const Json& expected = cases.at("+rope_interleave=false");
    ASSERT_NE(expected, "same") << name;
    const HfCopy copy(name);
    copy.edit("config.json", [](Json& json) { json["rope_interleave"] = false; });
    const std::string path = (copy.path() / "out.gguf").string();
    write_gguf(gguf_export(hf_checkpoint(copy.path().string())), {.mix = &find_mix("F32")}, path);
    const auto checkpoint = open_checkpoint(path);
    Ranks runner(checkpoint->config(), checkpoint->weights(),
                 {.backend = {.device = "ref"}, .max_batch_tokens = 512, .max_logits = 512, .kv_dtype = DType::kF32},
                 nullptr);
    std::vector<float> logits = all_logits(runner, read_golden(name).tokens, 512);
    logits.erase(logits.begin(), logits.end() - checkpoint->config().n_vocab);
    for (size_t i = 0; i < logits.size(); i += kStride)
      EXPECT_NEAR(logits[i], expected.at(i / kStride).get<double>(), 1e-3) << name << " " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ConfigCases, testing::ValuesIn(hf_names()), [](const auto& i) { return i.param; });

}  // namespace
}  // namespace ingot
