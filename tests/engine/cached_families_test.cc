// The prefix cache in every family of tests/data/models: an answer that continues from cached blocks, or from a snapshot
// of recurrent states, is that of Hugging Face transformers.
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "model/golden_models.h"
#include "tiny_models.h"

namespace ingot {
namespace {

struct CachedFamily {
  std::string model, device;
};

bool is_quantized(const std::string& model) {
  const Gguf file = Gguf::open(path_of(model + ".gguf"));
  return std::ranges::any_of(file.tensors(), [](const auto& t) { return !t.format || info(*t.format).block_size > 1; });
}

// Only ref computes with quantized weights as transformers does; the other devices round the inputs too.
std::vector<CachedFamily> cached_families() {
  std::vector<CachedFamily> all;
  for (const std::string& model : golden_names())
    for (const char* device : {"ref", "cpu", "cuda"})
      if (!GreedyGolden(model).greedy.empty() && (device == std::string("ref") || !is_quantized(model)))
        all.push_back({model, device});
  return all;
}

void PrintTo(const CachedFamily& family, std::ostream* out) { *out << family.model << " on " << family.device; }

class CachedFamilies : public testing::TestWithParam<CachedFamily> {};

TEST_P(CachedFamilies, ContinueFromCachedTokens) {
  const auto& [model, device] = GetParam();
  if (!has_device(device)) GTEST_SKIP() << "no " << device;
  const auto [prompt, greedy] = GreedyGolden(model);
  const auto file = std::make_shared<const Gguf>(Gguf::open(path_of(model + ".gguf")));
  Ranks runner(config_from_gguf(*file), gguf_source(file),
               RunnerOptions{.backend = {.device = device, .n_threads = 2},
                             .n_ctx = n_ctx_of(model) > 0 ? n_ctx_of(model) : 256,
                             .max_batch_tokens = 128,
                             .max_seqs = 16,
                             .block_size = 8,
                             .n_kv_tokens = 8192,
                             .kv_dtype = DType::kF32,
                             .n_snapshots = -1},
               nullptr);
  Engine engine(runner, {.chunk = 13});
  const int n_prompt = static_cast<int>(prompt.size());
  for (const int cached : {0, (n_prompt - 1) / 8 * 8}) {  // the prompt's whole blocks, without its last token
    const auto sink = submit(engine, prompt, 20);
    run(engine);
    EXPECT_EQ(sink->tokens, Tokens(greedy.begin(), greedy.begin() + 20));
    EXPECT_EQ(sink->finish->usage.cached_tokens, cached);
  }
  const auto more = submit(engine, joined(prompt, Tokens(greedy.begin(), greedy.begin() + 30)), 20);
  run(engine);
  EXPECT_EQ(more->tokens, Tokens(greedy.begin() + 30, greedy.begin() + 50));
  EXPECT_EQ(more->finish->usage.cached_tokens, n_prompt + 19);  // the end of the answer before
}

INSTANTIATE_TEST_SUITE_P(Models, CachedFamilies, testing::ValuesIn(cached_families()),
                         [](const auto& test) { return test.param.model + "_" + test.param.device; });

}  // namespace
}  // namespace ingot
