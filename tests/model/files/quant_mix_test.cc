// Mixes against llama.cpp's own program: tests/data/quant/mixes.json has the types that llama.cpp chose for each matrix
// of five models under each mix name (tools/quantizer/mix_goldens.py).
#include "model/files/quant_mix.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace ingot {
namespace {

using ::testing::HasSubstr;

// One value for all layers, or a list with one value for each layer.
template <class T>
T of_layer(const nlohmann::json& value, int layer) {
  return value.is_array() ? value[layer].get<T>() : value.get<T>();
}

TEST(QuantMix, ChoosesAsLlamaCppDoes) {
  const nlohmann::json golden = nlohmann::json::parse(read_file(INGOT_TEST_DATA "/quant/mixes.json"));
  int n_checked = 0;
  for (const auto& [shape, facts] : golden.items()) {
    const int n_layers = facts["n_layers"], heads_per_kv = facts["heads_per_kv"];
    const MixModel model{n_layers, heads_per_kv, !facts["has_output"].get<bool>(), n_layers == 80 && heads_per_kv > 1};
    for (const auto& [name, types] : facts["mixes"].items()) {
      for (const auto& [kind, type] : types.items()) {
        const bool in_layers = kind != "token_embd.weight" && kind != "output.weight";
        for (int layer = 0; layer < (in_layers ? n_layers : 1); ++layer) {
          const std::string tensor = in_layers ? fmt::format("blk.{}.{}", layer, kind) : kind;
          ASSERT_TRUE(is_quantizable(tensor, 2));
          const Format format = choose_format(find_mix(name), {}, model, tensor, facts["rows"][kind].get<int64_t>());
          EXPECT_EQ(info(format).name, of_layer<std::string>(type, layer)) << shape << ", " << name << ", " << tensor;
          ++n_checked;
        }
      }
    }
  }
  EXPECT_GT(n_checked, 10'000);
}

Format choose(const char* mix, const MixOptions& options, const MixModel& model, const char* tensor,
              int64_t n_in = 256) {
  return choose_format(find_mix(mix), options, model, tensor, n_in);
}

TEST(QuantMix, ImportanceChangesWhatLlamaCppSaysItChanges) {
  const MixModel model{.n_layers = 16};
  const MixOptions with{.with_importance = true};
  EXPECT_EQ(choose("Q4_0", {}, model, "blk.1.ffn_down.weight"), Format::Q4_0);
  EXPECT_EQ(choose("Q4_0", with, model, "blk.1.ffn_down.weight"), Format::Q4_1);
  EXPECT_EQ(choose("Q4_0", with, model, "blk.2.ffn_down.weight"), Format::Q4_0);
  EXPECT_EQ(choose("Q5_0", with, model, "blk.0.ffn_down.weight"), Format::Q5_1);
  EXPECT_EQ(choose("IQ4_XS", {}, model, "blk.1.ffn_down.weight"), Format::Q5_K);
  EXPECT_EQ(choose("IQ4_XS", with, model, "blk.1.ffn_down.weight"), Format::IQ4_XS);
  EXPECT_EQ(choose("Q2_K_S", with, model, "blk.1.ffn_down.weight"), Format::Q4_K);
  EXPECT_EQ(choose("Q2_K_S", with, model, "blk.2.ffn_down.weight"), Format::Q2_K);
}

TEST(QuantMix, OutputAndEmbeddingCanBeChosen) {
  const MixModel tied{.n_layers = 4}, untied{.n_layers = 4, .tied = false};
  const MixOptions options{.output = Format::Q8_0, .embedding = Format::Q4_K};
  EXPECT_EQ(choose("Q3_K_M", options, untied, "output.weight"), Format::Q8_0);
  EXPECT_EQ(choose("Q3_K_M", options, untied, "token_embd.weight"), Format::Q4_K);
  EXPECT_EQ(choose("Q3_K_M", {.output = Format::Q8_0}, tied, "token_embd.weight"), Format::Q8_0);
  EXPECT_EQ(choose("Q3_K_M", options, untied, "token_embd.weight", 96), Format::Q5_0);
  EXPECT_EQ(choose("MXFP4", {}, untied, "blk.0.ffn_up.weight"), Format::MXFP4);
  EXPECT_EQ(choose("MXFP4", {}, untied, "output.weight"), Format::Q8_0);
  EXPECT_EQ(choose("MXFP4", {}, untied, "token_embd.weight"), Format::Q8_0);
}

TEST(QuantMix, Names) {
  EXPECT_STREQ(find_mix("q4_k_m").name, "Q4_K_M");
  EXPECT_STREQ(find_mix("Q4_K").name, "Q4_K_M");
  EXPECT_STREQ(find_mix("q3_k").name, "Q3_K_M");
  EXPECT_EQ(find_mix("IQ4_XS").file_type, 30u);
  try {
    find_mix("Q4_K_XL");
    FAIL() << "was accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("unknown type 'Q4_K_XL'"), HasSubstr("Q4_K_M")));
  }
}

TEST(QuantMix, WhatIsNeverQuantized) {
  EXPECT_TRUE(is_quantizable("blk.3.ffn_down_exps.weight", 3));
  for (const char* name :
       {"blk.0.attn_norm.weight", "blk.0.ffn_gate_inp.weight", "blk.0.ssm_conv1d.weight", "blk.0.attn_q.bias"})
    EXPECT_FALSE(is_quantizable(name, 2)) << name;
  EXPECT_FALSE(is_quantizable("output_norm.weight", 1));
}

}  // namespace
}  // namespace ingot
