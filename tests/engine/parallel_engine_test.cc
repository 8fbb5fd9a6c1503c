// The engine on two ranks, on the two stages of a pipeline, and on two stages of two ranks each, in one process or in
// several. All work with
// concurrent requests, chunks, a pool that is too small for all requests, the prefix cache and the states of recurrent
// layers. Tiny models, compared with transformers' answers.
#include <gtest/gtest.h>

#include "model/apart.h"
#include "model/devices/parallel.h"
#include "tiny_models.h"

namespace ingot {
namespace {

RunnerOptions options_for(int n_kv_tokens) {
  return {.backend = {.device = "ref"},
          .n_ctx = 256,
          .max_batch_tokens = 32,
          .max_seqs = 4,
          .block_size = 4,
          .n_kv_tokens = n_kv_tokens,
          .kv_dtype = DType::kF32,
          .n_snapshots = -1};
}

std::unique_ptr<Ranks> start(const std::string& model, const RunnerOptions& options) {
  const auto file = std::make_shared<const Gguf>(Gguf::open(path_of(model + ".gguf")));
  return start_ranks(config_from_gguf(*file), gguf_source(file), options, nullptr);
}

int n_layers_of(const std::string& model) { return config_from_gguf(Gguf::open(path_of(model + ".gguf"))).n_layers; }

// Ranks and stages of one process.
struct Grid {
  int n_ranks, n_stages;
};

std::unique_ptr<Ranks> start(const std::string& model, Grid grid, int n_kv_tokens) {
  RunnerOptions options = options_for(n_kv_tokens);
  options.parallel.n_ranks = grid.n_ranks;
  if (grid.n_stages > 1) {
    options.backend.device = "ref,ref";
    options.parallel.devices.assign(static_cast<size_t>(grid.n_ranks), "ref,ref");
    options.layers_on.layers_of_device = even_layers(n_layers_of(model), 2);
  }
  return start(model, options);
}

// Calls `lead` with rank 0 of ranks that are processes.
void lead_processes(const std::string& model, const Layout& layout, int n_kv_tokens,
                    const std::function<void(Ranks&)>& lead) {
  const auto load = [&](const ParallelOptions& own) {
    RunnerOptions options = options_for(n_kv_tokens);
    options.parallel = own;
    set_stages(options, layout, n_layers_of(model));
    return start(model, options);
  };
  for (const std::string& error : run_apart(options_of_ranks(layout), load, lead)) EXPECT_EQ(error, "");
}

// Concurrent requests, and then a later turn, which begins with cached tokens.
void expect_answers(Ranks& runner, const GreedyGolden& golden) {
  const int n = static_cast<int>(golden.greedy.size());
  Engine engine(runner, {.chunk = 7});
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 4; ++i) sinks.push_back(submit(engine, golden.prompt, n));
  run(engine);
  for (const auto& sink : sinks) EXPECT_EQ(sink->tokens, golden.greedy);
  const int half = n / 2;
  const auto more =
      submit(engine, joined(golden.prompt, Tokens(golden.greedy.begin(), golden.greedy.begin() + half)), n - half);
  run(engine);
  EXPECT_EQ(more->tokens, Tokens(golden.greedy.begin() + half, golden.greedy.end()));
  EXPECT_GT(more->finish->usage.cached_tokens, 0);
}

// The sizes of a KV cache that has room for one request, and for all.
std::array<int, 2> kv_sizes(const GreedyGolden& golden) {
  const int n = static_cast<int>(golden.prompt.size() + golden.greedy.size());
  return {n + 8, 4 * n + 64};
}

constexpr const char* kModelNames[] = {"llama", "mistral_window", "gemma3", "qwen35moe", "deepseek2_lite"};

class ParallelEngine : public testing::TestWithParam<std::tuple<const char*, Grid>> {};

TEST_P(ParallelEngine, TokensEqualTransformers) {
  const auto [model, grid] = GetParam();
  const GreedyGolden golden(model);
  for (const int n_kv_tokens : kv_sizes(golden)) {
    const auto runner = start(model, grid, n_kv_tokens);
    EXPECT_EQ(runner->info().n_stages, grid.n_stages);
    expect_answers(*runner, golden);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ParallelEngine,
                         testing::Combine(testing::ValuesIn(kModelNames),
                                          testing::Values(Grid{2, 1}, Grid{1, 2}, Grid{2, 2})),
                         [](const auto& i) {
                           const Grid grid = std::get<1>(i.param);
                           return std::string(std::get<0>(i.param)) + "_tp" + std::to_string(grid.n_ranks) + "_pp" +
                                  std::to_string(grid.n_stages);
                         });

class ProcessesEngine : public testing::TestWithParam<std::tuple<const char*, Layout>> {};

TEST_P(ProcessesEngine, TokensEqualTransformers) {
  const char* model = std::get<0>(GetParam());
  const Layout layout = std::get<1>(GetParam());
  const GreedyGolden golden(model);
  for (const int n_kv_tokens : kv_sizes(golden))
    lead_processes(model, layout, n_kv_tokens, [&](Ranks& runner) {
      EXPECT_EQ(runner.info().n_stages, layout.n_stages);
      expect_answers(runner, golden);
    });
}

INSTANTIATE_TEST_SUITE_P(Models, ProcessesEngine,
                         testing::Combine(testing::ValuesIn(kModelNames),
                                          testing::Values(Layout{2, 1}, Layout{2, 2}, Layout{4, 2})),
                         [](const auto& i) {
                           return std::string(std::get<0>(i.param)) + "_" + std::get<1>(i.param).name();
                         });

// Requests of many kinds at the same time: the last stage draws, and rank 0 has the requests.
std::vector<std::shared_ptr<Collector>> requests_of_many_kinds(Ranks& runner, const Tokens& prompt) {
  std::vector<SamplingParams> kinds(8, SamplingParams{.seed = 7, .n_logprobs = 3});
  kinds[1].temperature = 0;
  kinds[2].repetition_penalty = 1.5f, kinds[2].penalty_window = -1;
  kinds[3].dry_multiplier = 2, kinds[3].dry_allowed_length = 1;
  kinds[4].mirostat = 2;
  kinds[5].logit_bias = {{5, 3.0f}, {6, -std::numeric_limits<float>::infinity()}};
  kinds[6].stages = {SamplerStage::kTemperature, SamplerStage::kTopK};
  kinds[7].n_logprobs = -1;
  Engine engine(runner, {.chunk = 5});
  std::vector<std::shared_ptr<Collector>> sinks;
  for (const SamplingParams& kind : kinds) {
    sinks.push_back(std::make_shared<Collector>());
    engine.submit({.prompt = prompt,
                   .sampling = kind,
                   .max_tokens = 12,
                   .wants_logits = sinks.size() == 1,
                   .sink = sinks.back()});
  }
  const RequestId unwanted =
      engine.submit({.prompt = prompt, .max_tokens = 100, .sink = std::make_shared<Collector>()});
  for (int i = 0; i < 7; ++i) engine.step();
  engine.cancel(unwanted);
  run(engine);
  return sinks;
}

TEST(ProcessesEngine, DrawsAreThoseOfOneDevice) {
  const GreedyGolden golden("llama");
  const auto whole = start("llama", Grid{1, 1}, 512);
  const auto expected = requests_of_many_kinds(*whole, golden.prompt);
  lead_processes("llama", {2, 2}, 512, [&](Ranks& runner) {
    const auto sinks = requests_of_many_kinds(runner, golden.prompt);
    for (size_t i = 0; i < sinks.size(); ++i) {
      EXPECT_EQ(sinks[i]->tokens, expected[i]->tokens) << i;
      EXPECT_EQ(sinks[i]->logprobs, expected[i]->logprobs) << i;
      EXPECT_EQ(sinks[i]->logits, expected[i]->logits) << i;
      EXPECT_EQ(sinks[i]->finish->reason, FinishReason::kLength);
    }
    EXPECT_FALSE(sinks[0]->logits.empty());
  });
}

// A rank has only a part of each block of the KV cache.
TEST(ProcessesEngine, CopiesNoBlocks) {
  for (const Layout& layout : {Layout{2, 1}, Layout{2, 2}})
    lead_processes("llama", layout, 512, [&](Ranks& runner) {
      Engine engine(runner, {});
      EXPECT_THROW(engine.find_prefix(root_key(""), {1, 2}), Error);
    });
}

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
  auto finding = from.find_prefix(root_key(""), golden.prompt);
  from.step();
  const CachedPrefix prefix = finding.get();
  std::vector<uint8_t> bytes(static_cast<size_t>(prefix.pools[0].n_full) * from.prefix_layout().pools[0].block_bytes);
  auto reading = from.read_prefix(prefix, 0, 0, bytes);
  from.step();
  reading.get();
  from.drop_prefix(prefix.held);
  bytes.insert(bytes.end(), prefix.pools[0].tail.begin(), prefix.pools[0].tail.end());
  EXPECT_FALSE(bytes.empty());
  auto holding = to.hold_prefix(root_key(""), prefix.tokens, {0});
  to.step();
  const auto held = holding.get();
  auto writing = to.write_prefix(held, 0, 0, bytes);
  to.step();
  writing.get();
  auto keeping = to.keep_prefix(held);
  to.step();
  keeping.get();
  const auto restored = submit(to, golden.prompt, n);
  run(from), run(to);
  EXPECT_EQ(restored->tokens, golden.greedy);
  EXPECT_GT(restored->finish->usage.cached_tokens, 0);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(sinks[i]->tokens, sinks[i + 3]->tokens);
}

}  // namespace
}  // namespace ingot
