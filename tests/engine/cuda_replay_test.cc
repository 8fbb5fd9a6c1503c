// Steps of whole models on the GPU. Each replayed step is compared bit by bit with plain launches of its ops, for one
// sequence (small models then run on a cluster) and for several, in f16, in f32 and deterministic. Skipped if the build
// has no CUDA or the machine has no GPU.
#include <gtest/gtest.h>

#include <filesystem>

#include "tiny_models.h"

namespace ingot {
namespace {

std::vector<std::string> models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_of("")))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  std::sort(names.begin(), names.end());
  return names;
}

class CudaReplay : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!has_device("cuda")) GTEST_SKIP() << "no GPU";
  }
  void run_checked(const BackendOptions& backend) {
    const auto file = std::make_shared<const Gguf>(Gguf::open(path_of(GetParam() + ".gguf")));
    RunnerOptions options{
        .backend = backend, .n_ctx = 128, .max_batch_tokens = 128, .max_seqs = 3, .check_replay = true};
    Ranks runner(config_from_gguf(*file), gguf_source(file), options, nullptr);
    const GreedyGolden golden(GetParam());
    Engine engine(runner);
    for (const int n_requests : {1, 3}) {
      std::vector<std::shared_ptr<Collector>> sinks;
      for (int i = 0; i < n_requests; ++i)
        sinks.push_back(submit(engine, Tokens(golden.prompt.begin(), golden.prompt.begin() + 5 + i), 10));
      run(engine);
      for (const auto& sink : sinks)
        EXPECT_TRUE(sink->finish && sink->finish->reason == FinishReason::kLength) << sink->finish->error;
    }
    EXPECT_EQ(engine.gauges().n_failed_steps, 0);
  }
};

TEST_P(CudaReplay, F16) { run_checked({.device = "cuda"}); }
TEST_P(CudaReplay, F32) { run_checked({.device = "cuda", .activations = "f32"}); }
TEST_P(CudaReplay, Deterministic) { run_checked({.device = "cuda", .deterministic = true}); }

INSTANTIATE_TEST_SUITE_P(Models, CudaReplay, testing::ValuesIn(models()), [](const auto& i) { return i.param; });

// The demo model's layers are quantized and run on the cluster, if the GPU has clusters.
TEST(CudaReplays, TheDemoModel) {
  if (!has_device("cuda")) GTEST_SKIP() << "no GPU";
  const auto file = std::make_shared<const Gguf>(Gguf::open(std::string(INGOT_TEST_DATA) + "/../../models/demo.gguf"));
  Ranks runner(config_from_gguf(*file), gguf_source(file),
               {.backend = {.device = "cuda"}, .n_ctx = 256, .max_seqs = 4, .check_replay = true}, nullptr);
  Engine engine(runner);
  for (const int n_requests : {1, 4}) {
    std::vector<std::shared_ptr<Collector>> sinks;
    for (int i = 0; i < n_requests; ++i) sinks.push_back(submit(engine, {1, 5, 9 + i}, 40));
    run(engine);
    for (const auto& sink : sinks) EXPECT_TRUE(sink->finish && sink->finish->reason == FinishReason::kLength);
  }
  EXPECT_EQ(engine.gauges().n_failed_steps, 0);
}

}  // namespace
}  // namespace ingot
