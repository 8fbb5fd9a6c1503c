// BackendOptions::small_weights with a whole model: the results are those of fast weights, and a model that does not
// fit with fast weights gets small ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cpu/kernels.h"
#include "base/memory_error.h"
#include "captured_log.h"
#include "model/rewritten_demo.h"

namespace ingot {
namespace {

using testing::HasSubstr;

Ranks load_rewritten(const std::shared_ptr<Rewritten>& matrices, const RunnerOptions& options) {
  const auto file = std::make_shared<const Gguf>(Gguf::open(kDemo));
  return {config_from_gguf(*file), std::make_unique<RewrittenSource>(file, matrices, false), options, nullptr};
}

RunnerOptions options_of(bool small_weights, int n_batch_tokens) {
  return {.backend = {.device = "cpu", .n_threads = 2, .small_weights = small_weights},
          .n_ctx = 128,
          .max_batch_tokens = n_batch_tokens,
          .max_logits = n_batch_tokens};
}

class SmallWeights : public testing::TestWithParam<Format> {};

// Products are sums of the same integers; only the order in which groups are added differs. That rounds some
// activations to another int8, so the perplexity of 128 tokens of a model with random weights moves by up to 0.5 %.
TEST_P(SmallWeights, GiveThePerplexityOfFastOnes) {
  const std::vector<int32_t> tokens = heldout_tokens();
  const auto matrices = std::make_shared<Rewritten>(GetParam());
  for (const int n_batch_tokens : {2, 64}) {
    const auto value = [&](bool small) {
      Ranks runner = load_rewritten(matrices, options_of(small, n_batch_tokens));
      return perplexity(runner, tokens, 128, 2, -1, nullptr).value;
    };
    EXPECT_NEAR(value(true) / value(false), 1, 0.02) << n_batch_tokens << " tokens at a time";
  }
}

TEST_P(SmallWeights, AreUsedIfMemoryIsShort) {
  const auto matrices = std::make_shared<Rewritten>(GetParam());
  const auto bytes_of = [&](const RunnerOptions& o) { return load_rewritten(matrices, o).memory().total_bytes(); };
  const size_t fast = bytes_of(options_of(false, 64)), small = bytes_of(options_of(true, 64));
  ASSERT_LT(small, fast);
  RunnerOptions options = options_of(false, 64);
  options.memory_bytes = (small + fast) / 2;
  {
    const CapturedLog log;
    const size_t weights = load_rewritten(matrices, options).memory().weight_bytes;
    EXPECT_EQ(weights, load_rewritten(matrices, options_of(true, 64)).memory().weight_bytes);
    EXPECT_THAT(log.text(), HasSubstr("memory is short: the weights stay as small as in the file"));
  }
  options.may_save_memory = false;
  EXPECT_THROW(load_rewritten(matrices, options), MemoryError);
  options.may_save_memory = true, options.memory_bytes = small / 2;
  EXPECT_THROW(load_rewritten(matrices, options), MemoryError);
}

INSTANTIATE_TEST_SUITE_P(Formats, SmallWeights,
                         testing::Values(Format::IQ1_S, Format::IQ1_M, Format::IQ2_XXS, Format::IQ2_XS, Format::IQ2_S,
                                         Format::IQ3_XXS, Format::IQ3_S, Format::TQ1_0),
                         [](const auto& i) { return std::string(ingot::info(i.param).name); });

}  // namespace
}  // namespace ingot
