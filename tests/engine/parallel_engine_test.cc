// The engine on two ranks, and on two devices in a pipeline. Both work with concurrent requests, chunks, a pool that is
// too small for all requests, the prefix cache and the states of recurrent layers. Tiny models, compared with
// transformers' answers.
#include <gtest/gtest.h>

#include "model/parallel.h"
#include "tiny_models.h"

namespace ingot {
namespace {

std::unique_ptr<Ranks> start(const std::string& model, bool divides_layers, int n_kv_tokens) {
  const auto file = std::make_shared<const Gguf>(Gguf::open(path_of(model + ".gguf")));
  RunnerOptions options{.backend = {.device = "ref"},
                        .n_ctx = 256,
                        .max_batch_tokens = 32,
                        .max_seqs = 4,
                        .block_size = 4,
                        .n_kv_tokens = n_kv_tokens,
                        .kv_dtype = DType::kF32,
                        .n_snapshots = -1};
  if (divides_layers) {
    options.parallel.n_ranks = 2;
  } else {
    options.backend.device = "ref,ref";
    const int n_layers = config_from_gguf(*file).n_layers;
    options.layers_on.layers_of_device = {n_layers / 2, n_layers - n_layers / 2};
  }
  return start_ranks(config_from_gguf(*file), gguf_source(file), options, nullptr);
}

class ParallelEngine : public testing::TestWithParam<std::tuple<const char*, bool>> {};

TEST_P(ParallelEngine, AnswersAreThoseOfTransformers) {
  const auto [model, divides_layers] = GetParam();
  const GreedyGolden golden(model);
  const int n = static_cast<int>(golden.greedy.size()), n_all = static_cast<int>(golden.prompt.size()) + n;
  for (const int n_kv_tokens : {n_all + 8, 4 * n_all + 64}) {  // room for one request or for all
    const auto runner = start(model, divides_layers, n_kv_tokens);
    EXPECT_EQ(runner->info().n_stages, divides_layers ? 1 : 2);
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
                                          testing::Bool()),
                         [](const auto& i) {
                           return std::string(std::get<0>(i.param)) + (std::get<1>(i.param) ? "_tp" : "_pp");
                         });

}  // namespace
}  // namespace ingot
