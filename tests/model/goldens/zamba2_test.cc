// Zamba 2, whose layers share weights: a tiny random model of transformers (tools/goldens/make_zamba2.py). It has only
// a directory, because llama.cpp does not know the family.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/blocks/shared_transformer.h"
#include "backend/ref/ref_backend.h"
#include "model/export/gguf_export.h"
#include "model/export/quantize.h"
#include "model/hf_models.h"
#include "model/layers/shared_transformer.h"

namespace ingot {
namespace {

const fs::path kZamba = fs::path(INGOT_TEST_DATA) / "zamba2";

// Ten times what f32 changes in transformers' logits (MAX_ROUNDING of make_zamba2.py). A wrong activation changes them
// by 1.
constexpr double kRounding = 1e-3;

Golden zamba_golden() {
  const auto json = nlohmann::json::parse(read_file((kZamba / "expected.json").string()));
  return {"zamba2", json["tokens"], json["greedy"], read_npy(kZamba / "logits.npy")};
}

Ranks load_zamba(const std::string& device, bool deterministic = false) {
  const auto checkpoint = hf_checkpoint(kZamba.string());
  return Ranks(checkpoint->config(), checkpoint->weights(),
               {.backend = {.device = device, .n_threads = 2, .deterministic = deterministic},
                .max_batch_tokens = 512,
                .max_logits = 512,
                .kv_dtype = DType::kF32},
               nullptr);
}

class Zamba2 : public testing::TestWithParam<const char*> {};

// How far logits may lie from transformers' own. On a GPU, activations are halves; transformers' logits in f16 are off
// by 0.32. On the CPU, prompts are multiplied in integers of 14 bits unless --deterministic is set.
double zamba_bound(std::string_view device, int chunk, bool deterministic) {
  if (device == "cuda") return 0.5;
  return device == "cpu" && chunk > 7 && !deterministic ? 0.08 : kRounding;
}

TEST_P(Zamba2, LogitsEqualTransformers) {
  if (GetParam() == std::string_view("cuda") && !has_gpu()) GTEST_SKIP() << "no GPU";
  const Golden golden = zamba_golden();
  for (const bool deterministic : {false, true})
    for (const int chunk : {512, 64, 7, 1}) {
      Ranks runner = load_zamba(GetParam(), deterministic);
      EXPECT_LT(largest_difference(all_logits(runner, golden.tokens, chunk), golden.logits),
                zamba_bound(GetParam(), chunk, deterministic))
          << chunk << ", deterministic " << deterministic;
    }
}

class ExactZamba2 : public testing::TestWithParam<const char*> {};  // devices that do not round activations to halves

TEST_P(ExactZamba2, GreedyEqualsTransformers) {
  const Golden golden = zamba_golden();
  std::vector<int32_t> tokens = golden.tokens;
  tokens.insert(tokens.end(), golden.greedy.begin(), golden.greedy.end());
  Ranks runner = load_zamba(GetParam());
  const std::vector<float> logits = all_logits(runner, tokens, 16);
  const size_t n_vocab = logits.size() / tokens.size();
  for (size_t i = golden.tokens.size(); i < tokens.size(); ++i) {
    const auto row = logits.begin() + static_cast<int64_t>((i - 1) * n_vocab);
    ASSERT_EQ(std::max_element(row, row + static_cast<int64_t>(n_vocab)) - row, tokens[i]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Zamba2, testing::Values("ref", "cpu", "cuda"),
                         [](const auto& i) { return std::string(i.param); });
INSTANTIATE_TEST_SUITE_P(Devices, ExactZamba2, testing::Values("ref", "cpu"),
                         [](const auto& i) { return std::string(i.param); });

// Three layers have two sets of weights, each of which is in memory once.
TEST(Zamba2Weights, AreInMemoryOnce) {
  const auto checkpoint = hf_checkpoint(kZamba.string());
  const auto backend = create_ref_backend();
  const auto source = checkpoint->weights();
  const Config config = checkpoint->config();
  EXPECT_EQ(config.part<SharedTransformerConfig>().layers, (std::vector<int>{1, 2, 3}));
  const WeightBytes bytes = weight_bytes(*source, config, *backend);
  const Weights weights = load_weights(*source, config, *backend, nullptr);
  EXPECT_EQ(backend->allocated_bytes(), bytes.allocated);
  const auto block = [&](int layer) -> const SharedTransformerBlock& {
    return weights.layers[static_cast<size_t>(layer)][0].get<SharedTransformerBlock>();
  };
  EXPECT_EQ(block(1).wq.codes, block(3).wq.codes);
  EXPECT_NE(block(1).wq.codes, block(2).wq.codes);
  EXPECT_NE(block(1).more_q.up.codes, block(3).more_q.up.codes);
}

std::string zamba_refusal(const char* key, const nlohmann::ordered_json& value) {
  const HfCopy copy("zamba2", kZamba.parent_path());
  copy.edit("config.json", [&](nlohmann::ordered_json& json) { json[key] = value; });
  try {
    hf_checkpoint(copy.path().string())->config();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Zamba2Config, RefusesWhatItDoesNotCompute) {
  using testing::HasSubstr;
  EXPECT_EQ(zamba_refusal("num_mem_blocks", 3), "");
  EXPECT_THAT(zamba_refusal("num_mem_blocks", 4),
              HasSubstr("'num_mem_blocks': 4 is more than the 3 layers of type hybrid"));
  EXPECT_THAT(zamba_refusal("num_mem_blocks", 0), HasSubstr("num_mem_blocks"));
  EXPECT_THAT(zamba_refusal("adapter_rank", 0), HasSubstr("adapter_rank"));
  EXPECT_THAT(zamba_refusal("layers_block_type", nullptr), HasSubstr("'layers_block_type': is missing"));
  EXPECT_THAT(zamba_refusal("layers_block_type", {"mamba", "mamba", "mamba", "mamba"}),
              HasSubstr("lists no layer of type hybrid"));
  EXPECT_THAT(zamba_refusal("layers_block_type", {"mamba", "hybrid"}), HasSubstr("2 elements for 4 layers"));
  EXPECT_THAT(zamba_refusal("layers_block_type", {"rnn", "hybrid", "mamba", "mamba"}),
              HasSubstr("layers of type 'rnn' are not supported"));
  EXPECT_THAT(zamba_refusal("add_bias_linear", true), HasSubstr("'add_bias_linear': is true"));
  EXPECT_THAT(zamba_refusal("use_long_context", true), HasSubstr("'use_long_context': is true"));
  EXPECT_THAT(zamba_refusal("attention_head_dim", nullptr), HasSubstr("'attention_head_dim': is missing"));
}

TEST(Zamba2Convert, IsRefused) {
  const HfCopy copy("zamba2", kZamba.parent_path());
  try {
    write_gguf(gguf_export(hf_checkpoint(copy.path().string())), {.mix = &find_mix("F32")},
               (copy.path() / "out.gguf").string());
    ADD_FAILURE() << "was written";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("run the directory without converting it"));
  }
}

}  // namespace
}  // namespace ingot
