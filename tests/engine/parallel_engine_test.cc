// The engine on two ranks, on the two stages of a pipeline, and on two stages of two ranks each. All work with
// concurrent requests, chunks, a pool that is too small for all requests, the prefix cache and the states of recurrent
// layers. Tiny models, compared with transformers' answers.
#include <gtest/gtest.h>

#include "model/parallel.h"
#include "tiny_models.h"

namespace ingot {
namespace {

struct Grid {
  int n_ranks, n_stages;
};

std::unique_ptr<Ranks> start(const std::string& model, Grid grid, int n_kv_tokens) {
  const auto file = std::make_shared<const Gguf>(Gguf::open(path_of(model + ".gguf")));
  RunnerOptions options{.backend = {.device = "ref"},
                        .n_ctx = 256,
                        .max_batch_tokens = 32,
                        .max_seqs = 4,
                        .block_size = 4,
                        .n_kv_tokens = n_kv_tokens,
                        .kv_dtype = DType::kF32,
                        .n_snapshots = -1};
  options.parallel.n_ranks = grid.n_ranks;
  if (grid.n_stages > 1) {
    options.backend.device = "ref,ref";
    options.parallel.devices.assign(static_cast<size_t>(grid.n_ranks), "ref,ref");
    const int n_layers = config_from_gguf(*file).n_layers;
    options.layers_on.layers_of_device = {n_layers / 2, n_layers - n_layers / 2};
  }
  return start_ranks(config_from_gguf(*file), gguf_source(file), options, nullptr);
}

class ParallelEngine : public testing::TestWithParam<std::tuple<const char*, Grid>> {};

TEST_P(ParallelEngine, AnswersAreThoseOfTransformers) {
  const auto [model, grid] = GetParam();
  const GreedyGolden golden(model);
  const int n = static_cast<int>(golden.greedy.size()), n_all = static_cast<int>(golden.prompt.size()) + n;
  for (const int n_kv_tokens : {n_all + 8, 4 * n_all + 64}) {  // room for one request or for all
    const auto runner = start(model, grid, n_kv_tokens);
    EXPECT_EQ(runner->info().n_stages, grid.n_stages);
    Engine engine(*runner, {.chunk = 7});
    std::vector<std::shared_ptr<Collector>> sinks;
    for (int i = 0; i < 4; ++i) sinks.push_back(submit(engine, golden.prompt, n));
    run(engine);
    for (const auto& sink : sinks) EXPECT_EQ(sink->tokens, golden.greedy) << n_kv_tokens;
    const int half = n / 2;  // a later turn begins with cached tokens
    const auto more =
        submit(engine, joined(golden.prompt, Tokens(golden.greedy.begin(), golden.greedy.begin() + half)), n - half);
    run(engine);
    EXPECT_EQ(more->tokens, Tokens(golden.greedy.begin() + half, golden.greedy.end()));
    EXPECT_GT(more->finish->usage.cached_tokens, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ParallelEngine,
                         testing::Combine(testing::Values("llama", "mistral_window", "gemma3", "qwen35moe",
                                                          "deepseek2_lite"),
                                          testing::Values(Grid{2, 1}, Grid{1, 2}, Grid{2, 2})),
                         [](const auto& i) {
                           const Grid grid = std::get<1>(i.param);
                           return std::string(std::get<0>(i.param)) + "_tp" + std::to_string(grid.n_ranks) + "_pp" +
                                  std::to_string(grid.n_stages);
                         });

// Blocks are copied between steps, while the stages have other steps in flight.
TEST(PipelineEngine, CopiesCachedBlocksWhileOtherRequestsRun) {
  const GreedyGolden golden("llama");
  const int n = static_cast<int>(golden.greedy.size());
  const auto first = start("llama", {1, 2}, 512), second = start("llama", {1, 2}, 512);
  Engine from(*first), to(*second);
  submit(from, golden.prompt, 1);
  run(from);
  std::vector<std::shared_ptr<Collector>> sinks;
  for (Engine* engine : {&from, &to})
    for (int i = 0; i < 3; ++i) sinks.push_back(submit(*engine, joined({i + 1}, golden.prompt), n));
  for (int i = 0; i < 4; ++i) from.step(), to.step();
  std::future<SavedPrefix> saving = from.save_prefix(root_key(""), golden.prompt);
  from.step();
  const SavedPrefix saved = saving.get();
  EXPECT_FALSE(saved.blocks.empty());
  std::future<void> restoring = to.restore_prefix(saved.view());
  to.step();
  restoring.get();
  const auto restored = submit(to, golden.prompt, n);
  run(from), run(to);
  EXPECT_EQ(restored->tokens, golden.greedy);
  EXPECT_GT(restored->finish->usage.cached_tokens, 0);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(sinks[i]->tokens, sinks[i + 3]->tokens);
}

}  // namespace
}  // namespace ingot
