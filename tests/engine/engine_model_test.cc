// The engine with a real (tiny, random) model on the ref backend. Many requests in a cache too small for all of them,
// chunked and preempted, must continue exactly like Hugging Face transformers (tests/data/models, made by
// tools/goldens/make_models.py).
#include <gtest/gtest.h>

#include "tiny_models.h"

namespace ingot {
namespace {

Ranks load_on_ref(const std::string& name, int max_batch_tokens, int n_kv_tokens) {
  auto file = std::make_shared<const Gguf>(Gguf::open(path_of(name + ".gguf")));
  RunnerOptions options;
  options.backend.device = "ref";
  options.n_ctx = 128;
  options.max_batch_tokens = max_batch_tokens;
  options.max_seqs = 6;
  options.block_size = 4;
  options.n_kv_tokens = n_kv_tokens;
  const Config config = config_from_gguf(*file);
  return Ranks(config, gguf_source(file), options, nullptr);
}

std::vector<std::shared_ptr<Collector>> run_all(Ranks& runner, int chunk, std::vector<Request> requests,
                                                int64_t* preemptions) {
  Engine engine(runner, {.chunk = chunk});
  std::vector<std::shared_ptr<Collector>> sinks;
  for (Request& request : requests) {
    sinks.push_back(std::make_shared<Collector>());
    request.sink = sinks.back();
    engine.submit(std::move(request));
    engine.step();
  }
  while (engine.step()) {
  }
  EXPECT_EQ(engine.gauges().blocks_used, 0);
  *preemptions += engine.gauges().n_preemptions;
  return sinks;
}

class EngineModel : public testing::TestWithParam<const char*> {};

TEST_P(EngineModel, GreedyOutputIsThatOfTransformers) {
  const auto golden = nlohmann::json::parse(read_file(path_of(std::string(GetParam()) + ".json")));
  const std::vector<int32_t> prompt = golden["tokens"], greedy = golden["greedy"];
  std::vector<int32_t> all = prompt;
  all.insert(all.end(), greedy.begin(), greedy.end());
  std::vector<Request> requests;
  for (size_t known : {0, 9, 30, 4, 63, 17}) {  // each request continues from a different place in the golden text
    Request request;
    request.prompt.assign(all.begin(), all.begin() + static_cast<ptrdiff_t>(prompt.size() + known));
    request.max_tokens = static_cast<int>(greedy.size() - known);
    request.sampling.temperature = 0;
    requests.push_back(request);
  }
  int64_t n_preempted = 0;
  for (int chunk : {3, 16, 64}) {
    Ranks runner = load_on_ref(GetParam(), 64, 224);
    const auto sinks = run_all(runner, chunk, requests, &n_preempted);
    for (size_t i = 0; i < requests.size(); ++i) {
      const std::vector<int32_t> expected(greedy.end() - requests[i].max_tokens, greedy.end());
      EXPECT_EQ(sinks[i]->tokens, expected) << "request " << i << ", chunk " << chunk;
    }
  }
  EXPECT_GT(n_preempted, 0);
}

TEST_P(EngineModel, DrawsDoNotDependOnTheSchedule) {
  Random random;
  SCOPED_TRACE(random.seed());
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {
    Request request;
    request.prompt.resize(random.integer(1, 40));
    for (int32_t& token : request.prompt) token = random.integer(0, 200);
    request.max_tokens = random.integer(40, 60);  // eight requests never fit in the small cache together
    request.ignore_eos = true;
    request.sampling.temperature = 1;
    request.sampling.repetition_penalty = 1.1f;
    request.sampling.seed = static_cast<uint64_t>(random.integer(0, 1 << 30));
    request.sampling.n_logprobs = 0;
    requests.push_back(request);
  }
  int64_t n_alone = 0, n_together = 0;
  Ranks roomy = load_on_ref(GetParam(), 112, 1000), tight = load_on_ref(GetParam(), 16, 160);
  const auto together = run_all(tight, 5, requests, &n_together);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto alone = run_all(roomy, 112, {requests[i]}, &n_alone)[0];
    EXPECT_EQ(together[i]->tokens, alone->tokens) << "request " << i;
    EXPECT_EQ(together[i]->logprobs, alone->logprobs) << "request " << i;
  }
  EXPECT_EQ(n_alone, 0);
  EXPECT_GT(n_together, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, EngineModel, testing::Values("llama", "qwen2", "qwen3", "qwen35_q8_0"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace ingot
