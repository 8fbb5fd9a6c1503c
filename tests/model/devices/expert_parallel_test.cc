// Ranks with whole experts give the logits of one rank, for all golden models with experts: even or uneven numbers of
// experts, and experts whose columns cannot be divided.
#include <gmock/gmock.h>

#include <array>

#include "backend/blocks/experts.h"
#include "model/hf_models.h"
#include "model/config/shards.h"
#include "model/devices/parallel.h"
#include "model/devices/rank_facts.h"
#include "model/files/checkpoint.h"
#include "model/program/shapes.h"
#include "model/rank_models.h"
#include "test_seed.h"

namespace ingot {
namespace {

RunnerOptions expert_options(const std::string& name, const std::string& device, int n_ranks) {
  return rank_options(name, device, n_ranks, /*whole_experts=*/true);
}

std::unique_ptr<Ranks> start_experts(const fs::path& path, const std::string& device, int n_ranks) {
  return start_ranks_of(path, expert_options(path.stem(), device, n_ranks));
}

// Whether the first keys of the file name experts. Every start of this program asks for each model, so models are not
// opened.
bool names_experts(const fs::path& path) {
  std::string keys(2000, '\0');
  std::ifstream(fs::is_directory(path) ? path / "config.json" : path, std::ios::binary).read(keys.data(), 2000);
  return keys.find("expert") != keys.npos && keys.find("\"num_experts\": null") == keys.npos;
}

std::vector<std::string> with_experts(std::vector<std::string> names, const fs::path& folder, const char* extension) {
  std::erase_if(names, [&](const std::string& name) {
    return !names_experts(folder / (name + extension));
  });
  return names;
}

TEST(Experts, AreNamedByTheFirstKeys) {
  const auto check = [](const fs::path& path) {
    EXPECT_EQ(names_experts(path), open_checkpoint(path.string())->config().experts.n > 0) << path;
  };
  for (const std::string& name : golden_names()) check(kModels / (name + ".gguf"));
  for (const std::string& name : hf_names()) check(kHfModels / name);
}

class ExpertParallel : public testing::TestWithParam<std::string> {};

TEST_P(ExpertParallel, LogitsEqualTransformers) {
  const Golden golden = read_golden(GetParam());
  const fs::path path = kModels / (golden.name + ".gguf");
  for (const int n : {2, 3, 4}) {
    std::unique_ptr<Ranks> runner;
    try {
      runner = start_experts(path, "ref", n);
    } catch (const UsageError& error) {  // the model has too few heads
      EXPECT_NE(n, 2) << error.what();
      EXPECT_THAT(error.what(), testing::AnyOf(testing::HasSubstr("heads"), testing::HasSubstr("shared expert's")));
      continue;
    }
    for (const int chunk : {512, 7, 1})
      EXPECT_LT(largest_difference(all_logits(*runner, golden.tokens, chunk), golden.logits), 1e-4)
          << n << " " << chunk;
  }
}

TEST_P(ExpertParallel, CpuLogitsAreNearThoseOfOneRank) {
  const Golden golden = read_golden(GetParam());
  if (!keeps_activations(golden.name)) return;
  const auto runner = start_experts(kModels / (golden.name + ".gguf"), "cpu", 2);
  for (const int chunk : {512, 7, 1})
    EXPECT_LT(largest_difference(all_logits(*runner, golden.tokens, chunk), golden.logits), 1e-4) << chunk;
}

// Two stages, each divided between two ranks.
TEST_P(ExpertParallel, StagesOfRanks) {
  const Golden golden = read_golden(GetParam());
  const auto runner = start_stages_of_ranks(golden.name, true);
  EXPECT_EQ(runner->info().n_stages, 2);
  EXPECT_LT(largest_difference(all_logits(*runner, golden.tokens, 7), golden.logits), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertParallel, testing::ValuesIn(with_experts(golden_names(), kModels, ".gguf")),
                         [](const auto& i) { return i.param; });

class HfExpertParallel : public testing::TestWithParam<std::string> {};

// Experts are stacked, interleaved or in a tensor each.
TEST_P(HfExpertParallel, LogitsEqualTransformers) {
  const Golden golden = read_golden(GetParam());
  const auto runner = start_experts(kHfModels / golden.name, "ref", 2);
  EXPECT_LT(largest_difference(all_logits(*runner, golden.tokens, 512), golden.logits), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, HfExpertParallel, testing::ValuesIn(with_experts(hf_names(), kHfModels, "")),
                         [](const auto& i) { return i.param; });

// A small model like qwen3-30b-a3b, whose experts have three blocks of columns.
Config config_like_qwen(int n_experts) {
  Config c = config_of_shape("qwen3-30b-a3b");
  c.n_layers = 2, c.dim = 256, c.n_vocab = 320, c.n_ctx_train = 64;
  c.n_heads = 16, c.n_kv_heads = 4, c.head_dim = c.rot_dim = 64;
  c.experts.n = n_experts, c.experts.n_used = 3, c.experts.ffn_dim = 768;
  if (!c.layers.empty()) c.layers.resize(2);
  return c;
}

std::string start_error(const Config& config, int n_ranks, bool whole_experts) {
  RunnerOptions options = expert_options("", "ref", n_ranks);
  options.n_ctx = 64;
  options.parallel.whole_experts = whole_experts;
  try {
    start_ranks(config, dummy_source(config, Format::Q4_K, 1), options, nullptr);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

// 4 of 4 experts: one for each rank. 6 and 7: some ranks have one, others two.
TEST(WholeExperts, DivideBlocksThatColumnsCannot) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  std::vector<int32_t> tokens(40);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>((seed / 7 + 31 * i * i) % 320);
  for (const int n_experts : {4, 6, 7}) {
    const Config config = config_like_qwen(n_experts);
    const auto run = [&](int n_ranks, int chunk) {
      RunnerOptions options = expert_options("", "ref", n_ranks);
      options.n_ctx = 64;
      const auto runner = start_ranks(config, dummy_source(config, Format::Q4_K, seed), options, nullptr);
      EXPECT_EQ(runner->config().experts.n, n_experts / n_ranks);
      return all_logits(*runner, tokens, chunk);
    };
    const std::vector<float> one = run(1, 512);
    float largest = 0;
    for (const float v : one) largest = std::max(largest, std::abs(v));
    for (const int chunk : {512, 1}) EXPECT_LT(largest_difference(run(4, chunk), one), 1e-4 * largest) << n_experts;
  }
  EXPECT_THAT(start_error(config_like_qwen(4), 4, false),
              testing::HasSubstr("its experts' feed-forward can be divided into at most 3 parts of whole blocks, but "
                                 "ranks can have whole experts: use ep"));
}

TEST(WholeExperts, Errors) {
  EXPECT_THAT(start_error(config_like_qwen(3), 4, true), testing::HasSubstr("4 ranks are too many for"));
  EXPECT_THAT(start_error(config_like_qwen(3), 4, true),
              testing::HasSubstr("its experts can be divided into at most 3 parts"));
  EXPECT_THAT(start_error(config_like_qwen(3), 4, false), testing::EndsWith("at most 3 parts of whole blocks"));
  EXPECT_THAT(start_error(config_of_shape("smollm-135m"), 3, true),
              testing::HasSubstr("ep needs a model with experts, but this model has none"));
}

TEST(WholeExperts, AreComparedBetweenRanks) {
  RunnerOptions options = expert_options("mixtral", "ref", 2);
  const std::string with = options_text(options);
  options.parallel.whole_experts = false;
  EXPECT_NE(with, options_text(options));
}

// The ranks' matrices of experts together are those of the model: each rank reads its part of a token's experts.
TEST(WholeExperts, AreOnOneRankEach) {
  const Config model = config_like_qwen(7);
  int64_t n_experts = 0;
  size_t active = 0, active_of_slices = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const auto backend = create_backend({.device = "ref"});
    const auto load = [&](const Config& config) {
      return load_weights(*dummy_source(model, Format::Q8_0, 1), config, *backend, nullptr);
    };
    const Config config = config_of_rank(model, rank, 3, 32, true);
    const Weights weights = load(config);
    for (const std::vector<Block>& parts : weights.layers) {
      const auto& experts = parts[1].get<ExpertsBlock>();
      EXPECT_EQ(experts.w_gate.n_experts, config.experts.n);
      EXPECT_EQ(experts.w_down.n_experts, config.experts.n);
      EXPECT_EQ(experts.w_down.n_in, 768);
      EXPECT_EQ(experts.w_router.n_out, 7);
    }
    n_experts += config.experts.n;
    active += weights.active_bytes;
    active_of_slices += load(config_of_rank(model, rank, 3, 32)).active_bytes;
  }
  EXPECT_EQ(n_experts, 7);
  EXPECT_NEAR(static_cast<double>(active) / static_cast<double>(active_of_slices), 1, 1e-3);
}

}  // namespace
}  // namespace ingot
