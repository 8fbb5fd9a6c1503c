// Tiny random models against Hugging Face transformers (tools/goldens/make_models.py): logits at every position, and 64
// greedy tokens, whatever the chunks in which the prompt goes through.
#include <gtest/gtest.h>

#include "backend/sampler.h"
#include "golden_models.h"

namespace ingot {
namespace {

class Goldens : public testing::TestWithParam<std::string> {};

TEST_P(Goldens, RefLogitsEqualTransformers) {
  const Golden golden = read_golden(GetParam());
  Ranks runner = load_golden(golden.name, {.device = "ref"});
  EXPECT_LT(largest_difference(all_logits(runner, golden.tokens, 512), golden.logits), 1e-4);
}

TEST_P(Goldens, ChunksDoNotChangeLogits) {
  const Golden golden = read_golden(GetParam());
  Ranks runner = load_golden(golden.name, {.device = "ref"}, 4);
  const std::vector<float> whole = all_logits(runner, golden.tokens, 512);
  for (int chunk : {1, 7, 16}) EXPECT_LT(largest_difference(all_logits(runner, golden.tokens, chunk), whole), 1e-5) << chunk;
}

TEST_P(Goldens, RefGreedyEqualsTransformers) {
  const Golden golden = read_golden(GetParam());
  Ranks runner = load_golden(golden.name, {.device = "ref"});
  std::vector<int32_t> tokens = golden.tokens;
  tokens.insert(tokens.end(), golden.greedy.begin(), golden.greedy.end());
  std::vector<int32_t> greedy;
  for_each_logits(runner, tokens, 1, static_cast<int>(golden.tokens.size()) - 1, [&](int position, std::span<const float> row) {
    if (position + 1 < static_cast<int>(tokens.size())) greedy.push_back(argmax(row));
  });
  EXPECT_EQ(greedy, golden.greedy);
}

INSTANTIATE_TEST_SUITE_P(Models, Goldens, testing::ValuesIn(golden_names()), [](const auto& i) { return i.param; });

}  // namespace
}  // namespace ingot
