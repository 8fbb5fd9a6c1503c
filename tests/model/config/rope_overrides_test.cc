// Values of the user in place of the file's: ropes of any checkpoint, and keys of a GGUF file.
#include "model/config/rope_overrides.h"

#include <gtest/gtest.h>

#include "model/files/checkpoint.h"
#include "model/golden_models.h"

namespace ingot {
namespace {

std::string complaint(const RopeOverrides& ropes, const char* golden) {
  Config c = open_checkpoint((kModels / golden).string())->config();
  try {
    apply(ropes, c);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

// The key says that nothing is scaled, and the override restores what the golden was made with.
TEST(RopeOverrides, LinearScalingEqualsThatOfTheFile) {
  const Golden golden = read_golden("llama_linear");
  auto file = std::make_shared<Gguf>(Gguf::open((kModels / "llama_linear.gguf").string()));
  file->set_metadata("llama.rope.scaling.type", ValueType::kString, "none");
  file->set_metadata("a.new.key", ValueType::kI64, std::string(8, '\1'));
  EXPECT_TRUE(file->metadata().contains("a.new.key"));
  const auto plain = gguf_checkpoint(file);
  EXPECT_EQ(plain->config().rope_scaling.kind, RopeScalingKind::kNone);
  const RunnerOptions options{
      .backend = {.device = "ref"}, .max_batch_tokens = 512, .max_logits = 512, .kv_dtype = DType::kF32};
  Ranks without(plain->config(), plain->weights(), options, nullptr);
  EXPECT_GT(largest_difference(all_logits(without, golden.tokens, 512), golden.logits), 1e-2);
  const auto scaled = with_ropes(plain, {.scaling = "linear", .scale = 2.5f});
  Ranks with(scaled->config(), scaled->weights(), options, nullptr);
  EXPECT_LT(largest_difference(all_logits(with, golden.tokens, 512), golden.logits), 1e-4);
}

TEST(RopeOverrides, ChangeTheConfig) {
  Config c = open_checkpoint((kModels / "llama.gguf").string())->config();
  const int n_ctx = c.n_ctx_train;
  apply({.scaling = "yarn", .scale = 4.0f, .freq_base = 5e5f, .beta_slow = 2.0f, .beta_fast = 8.0f}, c);
  EXPECT_EQ(c.rope_theta, 5e5f);
  EXPECT_EQ(c.rope_scaling.kind, RopeScalingKind::kYarn);
  EXPECT_EQ(c.rope_scaling.original_context, n_ctx);
  EXPECT_EQ(c.n_ctx_train, 4 * n_ctx);
  EXPECT_FLOAT_EQ(c.rope_scaling.magnitude, 1.0f + 0.1f * std::log(4.0f));
  apply({.ext_factor = 0.0f, .attn_factor = 0.5f}, c);
  EXPECT_EQ(c.rope_scaling.extrapolation, 0.0f);
  EXPECT_EQ(c.rope_scaling.magnitude, 0.5f);  // YaRN's own factor belongs to the extrapolation
  apply({.scaling = "none"}, c);
  EXPECT_EQ(c.rope_scaling.kind, RopeScalingKind::kNone);
  apply({.scale = 3.0f}, c);  // linear, if the file scales nothing
  EXPECT_EQ(c.rope_scaling.kind, RopeScalingKind::kLinear);
  EXPECT_EQ(c.rope_scaling.factor, 3.0f);
}

TEST(RopeOverrides, WhatDoesNotSuitIsRefused) {
  EXPECT_NE(complaint({.scaling = "ntk"}, "llama.gguf").find("'ntk' is not known"), std::string::npos);
  EXPECT_NE(complaint({.beta_slow = 2.0f}, "llama.gguf").find("settings of YaRN need"), std::string::npos);
  EXPECT_NE(complaint({.scaling = "linear", .ext_factor = 0.5f}, "llama.gguf").find("settings of YaRN need"),
            std::string::npos);
  EXPECT_NE(complaint({.scaling = "none", .scale = 2.0f}, "llama.gguf").find("a factor of ropes needs"),
            std::string::npos);
}

}  // namespace
}  // namespace ingot
