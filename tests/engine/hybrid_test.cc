// The prefix cache of models with recurrent layers (gated delta nets, short convolutions, scans): a sequence that
// continues from a snapshot has the same output as without a cache. Tiny models of tests/data/models, with goldens from
// transformers.
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "model/devices/ranks.h"
#include "tiny_models.h"

namespace ingot {
namespace {

std::unique_ptr<Ranks> load_hybrid(const std::string& model, const std::string& device, int n_snapshots = -1) {
  const auto file = std::make_shared<const Gguf>(Gguf::open(path_of(model + ".gguf")));
  return std::make_unique<Ranks>(config_from_gguf(*file), gguf_source(file),
                                 RunnerOptions{.backend = {.device = device, .n_threads = 2, .deterministic = true},
                                               .n_ctx = 256,
                                               .max_batch_tokens = 128,
                                               .max_seqs = 16,
                                               .block_size = 8,
                                               .n_kv_tokens = 8192,
                                               .n_snapshots = n_snapshots},
                                 nullptr);
}

struct HybridCase {
  const char *model, *device;
};
class Hybrid : public testing::TestWithParam<HybridCase> {
 protected:
  void SetUp() override {
    if (!has_device(GetParam().device)) GTEST_SKIP() << "no " << GetParam().device;
  }
};

// 16 conversations at once, of 5 turns each. A turn computes only its new tokens, and the output is the same as with an
// empty cache. All conversations begin differently. Otherwise a short prompt that equals another whole conversation by
// chance would take over that conversation's state.
TEST_P(Hybrid, InterleavedConversations) {
  Random random;
  SCOPED_TRACE(random.seed());
  const auto runner = load_hybrid(GetParam().model, GetParam().device),
             other = load_hybrid(GetParam().model, GetParam().device);
  const int n_vocab = runner->info().n_vocab;
  Engine engine(*runner, {.chunk = 32}), uncached(*other, {.prefix_cache = false});
  const bool slow = std::string_view(GetParam().device) == "ref";
  std::vector<Tokens> histories(slow ? 4 : 16);
  int64_t n_new = 0;
  for (int turn = 0; turn < (slow ? 3 : 5); ++turn) {
    std::vector<std::shared_ptr<Collector>> sinks, again;
    std::vector<int> n_known;
    for (Tokens& history : histories) {
      n_known.push_back(std::max(0, static_cast<int>(history.size()) - 1));
      history = joined(history, random_tokens(random, random.integer(1, 25), n_vocab));
      history.front() = static_cast<int32_t>(&history - histories.data());
      sinks.push_back(submit(engine, history, random.integer(1, 20)));
      n_new += static_cast<int64_t>(history.size()) - n_known.back();
    }
    run(engine);
    for (size_t i = 0; i < sinks.size(); ++i) {
      again.push_back(submit(uncached, histories[i], static_cast<int>(sinks[i]->tokens.size())));
      n_new += static_cast<int64_t>(sinks[i]->tokens.size()) - 1;
    }
    run(uncached);
    for (size_t i = 0; i < sinks.size(); ++i) {
      EXPECT_EQ(sinks[i]->finish->usage.cached_tokens, n_known[i]) << "conversation " << i << ", turn " << turn;
      EXPECT_EQ(sinks[i]->tokens, again[i]->tokens) << "conversation " << i << ", turn " << turn;
      EXPECT_EQ(sinks[i]->logprobs, again[i]->logprobs) << "conversation " << i << ", turn " << turn;
      histories[i] = joined(histories[i], sinks[i]->tokens);
    }
  }
  EXPECT_EQ(engine.gauges().n_computed_tokens, n_new);
}

INSTANTIATE_TEST_SUITE_P(Models, Hybrid,
                         testing::Values(HybridCase{"qwen3next", "cpu"}, HybridCase{"qwen35", "cpu"},
                                         HybridCase{"qwen35moe", "cpu"}, HybridCase{"qwen35", "ref"},
                                         HybridCase{"qwen3next", "cuda"}, HybridCase{"qwen35", "cuda"},
                                         HybridCase{"qwen35moe", "cuda"}, HybridCase{"qwen35moe", "cpu,cpu"},
                                         HybridCase{"lfm3", "cpu"}, HybridCase{"lfm3", "cuda"},
                                         HybridCase{"lfm2", "cpu"}, HybridCase{"lfm2_moe", "cpu"},
                                         HybridCase{"mamba2", "cpu"}, HybridCase{"mamba2", "ref"},
                                         HybridCase{"lfm2", "cuda"}, HybridCase{"lfm2_moe", "cuda"},
                                         HybridCase{"mamba2", "cuda"}, HybridCase{"granite_hybrid", "cpu"},
                                         HybridCase{"mamba", "cpu"}, HybridCase{"mamba", "cuda"},
                                         HybridCase{"jamba", "cpu"}, HybridCase{"jamba", "cuda"},
                                         HybridCase{"kimi_linear", "cpu"}, HybridCase{"kimi_linear", "cuda"},
                                         HybridCase{"rwkv7", "cpu"}, HybridCase{"rwkv7", "cuda"},
                                         HybridCase{"olmo_hybrid", "cpu"}, HybridCase{"olmo_hybrid", "cuda"},
                                         HybridCase{"recurrent_gemma", "cpu"}, HybridCase{"recurrent_gemma", "cuda"},
                                         HybridCase{"granite_hybrid", "cpu,cpu"}, HybridCase{"granite_hybrid", "cuda"},
                                         HybridCase{"nemotron_h_moe", "cpu"}, HybridCase{"nemotron_h_moe", "cuda"},
                                         HybridCase{"falcon_h1", "cpu"}, HybridCase{"falcon_h1", "cuda"}),
                         [](const auto& test) {
                           const std::string device = test.param.device;
                           return std::string(test.param.model) + "_" + (device == "cpu,cpu" ? "stages" : device);
                         });

// With fewer snapshots than the requests need, fewer tokens are cached, and the output is unchanged.
TEST(HybridCache, FewerSnapshotsCacheFewerTokens) {
  Random random;
  SCOPED_TRACE(random.seed());
  const auto runner = load_hybrid("qwen35", "cpu", 3), other = load_hybrid("qwen35", "cpu");
  const int n_vocab = runner->info().n_vocab;
  Engine engine(*runner, {.chunk = 16}), uncached(*other, {.prefix_cache = false});
  const Tokens shared = random_tokens(random, 40, n_vocab);
  int64_t n_cached = 0;
  for (int round = 0; round < 4; ++round) {
    std::vector<std::shared_ptr<Collector>> sinks, again;
    for (int i = 0; i < 16; ++i) {
      const Tokens prompt = joined(shared, random_tokens(random, random.integer(1, 30), n_vocab));
      const int n = random.integer(1, 30);
      sinks.push_back(submit(engine, prompt, n));
      again.push_back(submit(uncached, prompt, n));
    }
    run(engine);
    run(uncached);
    for (size_t i = 0; i < sinks.size(); ++i) {
      EXPECT_EQ(sinks[i]->tokens, again[i]->tokens) << i;
      EXPECT_EQ(sinks[i]->logprobs, again[i]->logprobs) << i;
      n_cached += sinks[i]->finish->usage.cached_tokens;
    }
    EXPECT_EQ(engine.gauges().states_used, 0);
  }
  EXPECT_LT(n_cached, 64 * 40);
}

}  // namespace
}  // namespace ingot
