// Models with a window in every layer. Blocks that no layer sees any more are released to other sequences, and the
// prefix cache still finds the remaining blocks. Tiny models of tests/data/models, with goldens from transformers.
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "model/devices/ranks.h"
#include "tiny_models.h"

namespace ingot {
namespace {

struct WindowSetup {
  std::string device = "cpu";
  int block_size = 4;
  int n_kv_tokens = 2048;
  bool deterministic = false;
};

std::unique_ptr<Ranks> load_windowed(const std::string& model, const WindowSetup& s) {
  const auto file = std::make_shared<const Gguf>(Gguf::open(path_of(model + ".gguf")));
  return std::make_unique<Ranks>(
      config_from_gguf(*file), gguf_source(file),
      RunnerOptions{.backend = {.device = s.device, .n_threads = 2, .deterministic = s.deterministic},
                    .n_ctx = 256,
                    .max_batch_tokens = 128,
                    .max_seqs = 6,
                    .block_size = s.block_size,
                    .n_kv_tokens = s.n_kv_tokens},
      nullptr);
}

TEST(Window, IsTheWidestOfAllLayers) {
  EXPECT_EQ(load_windowed("mistral_window", {})->info().pools[0].window, 16);
  EXPECT_EQ(load_windowed("phi3", {})->info().pools[0].window, 19);
  EXPECT_EQ(load_windowed("gemma3", {})->info().pools[0].window, 0);  // one layer in six sees all tokens
  EXPECT_EQ(load_windowed("llama", {})->info().pools[0].window, 0);
}

class Windowed : public testing::TestWithParam<const char*> {};

TEST_P(Windowed, ASequenceHoldsItsWindowAndTheCacheTheRest) {
  const GreedyGolden golden("mistral_window");
  const auto runner = load_windowed("mistral_window", {.device = GetParam()});
  int most_blocks = 0;
  Engine engine(*runner, {.chunk = 8,
                          .on_step = [&](const StepStats& s) { most_blocks = std::max(most_blocks, s.blocks_used); }});
  const auto first = submit(engine, golden.prompt, 64);
  run(engine);
  EXPECT_EQ(first->tokens, golden.greedy);
  // A window of 16 tokens and a chunk of 8 need 6 blocks, and may begin and end inside blocks.
  EXPECT_LE(most_blocks, 8);
  EXPECT_EQ(engine.gauges().blocks_used, 0);
  const auto again = submit(engine, golden.prompt, 64),
             longer = submit(engine, joined(golden.prompt, golden.greedy), 9);
  run(engine);
  EXPECT_EQ(again->finish->usage.cached_tokens, static_cast<int>(golden.prompt.size()) - 1);
  EXPECT_EQ(again->tokens, golden.greedy);
  EXPECT_EQ(longer->finish->usage.cached_tokens, 61 + 63);
  Engine uncached(*runner, {.prefix_cache = false});
  const auto anew = submit(uncached, joined(golden.prompt, golden.greedy), 9);
  run(uncached);
  EXPECT_EQ(anew->finish->usage.cached_tokens, 0);
  EXPECT_EQ(anew->tokens, longer->tokens);
}

TEST_P(Windowed, BlocksAreUsedAgainByOthers) {
  const GreedyGolden golden("mistral_window");
  for (const bool prefix_cache : {true, false}) {
    const auto runner = load_windowed("mistral_window", {.device = GetParam(), .n_kv_tokens = 256});
    Engine engine(*runner, {.chunk = 7, .prefix_cache = prefix_cache});
    std::vector<std::shared_ptr<Collector>> sinks;
    std::vector<int> known = {0, 40, 9, 55, 22, 3};
    for (const int n : known) {  // 750 tokens in all, in a cache of 256 tokens
      const Tokens begun(golden.greedy.begin(), golden.greedy.begin() + n);
      sinks.push_back(submit(engine, joined(golden.prompt, begun), 64 - n));
    }
    run(engine);
    for (size_t i = 0; i < known.size(); ++i)
      EXPECT_EQ(sinks[i]->tokens, Tokens(golden.greedy.begin() + known[i], golden.greedy.end())) << i;
    EXPECT_EQ(engine.gauges().n_preemptions, 0);  // without windows, the six requests would need three times the cache
    EXPECT_EQ(engine.gauges().blocks_used, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Windowed, testing::Values("ref", "cpu"),
                         [](const auto& test) { return std::string(test.param); });

TEST(Window, ALayerThatSeesAllKeepsAll) {
  const GreedyGolden golden("gemma3");
  const auto runner = load_windowed("gemma3", {});
  int most_blocks = 0;
  Engine engine(*runner, {.chunk = 8,
                          .on_step = [&](const StepStats& s) { most_blocks = std::max(most_blocks, s.blocks_used); }});
  const auto sink = submit(engine, golden.prompt, 64);
  run(engine);
  EXPECT_EQ(sink->tokens, golden.greedy);
  EXPECT_EQ(most_blocks, (61 + 63 + 3) / 4);
}

// The softmax is updated for one block of keys at a time. The start of a window must not move the bounds of these
// blocks.
TEST(Window, DeterministicWithBlocksOfAnySize) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int block_size : {1, 5, 8, 16, 24, 48, 100}) {
    const auto runner = load_windowed("phi3", {.block_size = block_size, .deterministic = true});
    Tokens prompt(static_cast<size_t>(random.integer(90, 150)));
    for (int32_t& token : prompt) token = random.integer(0, runner->info().n_vocab - 1);
    std::shared_ptr<Collector> first;
    for (const int chunk : {128, 1, 7, 32}) {
      Engine engine(*runner, {.chunk = chunk});
      const auto miss = submit(engine, prompt, 60);
      run(engine);
      const auto hit = submit(engine, prompt, 60);
      submit(engine, Tokens(prompt.begin() + 3, prompt.end()), 5);
      run(engine);
      if (!first) first = miss;
      for (const auto& sink : {miss, hit}) {
        EXPECT_EQ(sink->tokens, first->tokens) << "blocks of " << block_size << ", chunk " << chunk;
        EXPECT_EQ(sink->logprobs, first->logprobs) << "blocks of " << block_size << ", chunk " << chunk;
      }
    }
  }
}

}  // namespace
}  // namespace ingot
