// The goldens on two GPUs: the logits of all models equal those of transformers, within the error of f16 activations.
// Skipped with one GPU.
#include <gmock/gmock.h>

#include "backend/cuda/create_cuda.h"
#include "golden_models.h"
#include "model/checkpoint.h"
#include "model/parallel.h"

namespace ingot {
namespace {

std::unique_ptr<Ranks> start(const std::string& name, int n_ranks, bool whole_experts = false) {
  const auto checkpoint = open_checkpoint((kModels / (name + ".gguf")).string());
  RunnerOptions options{.backend = {.device = "cuda", .activations = "f32"},
                        .n_ctx = n_ctx_of(name),
                        .max_batch_tokens = 512,
                        .max_logits = 512,
                        .kv_dtype = DType::kF32};
  options.parallel.n_ranks = n_ranks;
  options.parallel.whole_experts = whole_experts;
  return start_ranks(checkpoint->config(), checkpoint->weights(), options, nullptr);
}

bool has_two_gpus() {
  try {
    create_cuda_backend({.device = "cuda:1"});
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

class CudaParallel : public testing::TestWithParam<std::string> {};

TEST_P(CudaParallel, LogitsEqualThoseOfOneGpu) {
  if (!has_two_gpus()) GTEST_SKIP() << "there are not two GPUs";
  const Golden golden = read_golden(GetParam());
  const auto one = start(golden.name, 1);
  std::unique_ptr<Ranks> two;
  try {
    two = start(golden.name, 2);
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("ranks are too many"));
    return;
  }
  for (const int chunk : {512, 7, 1})  // of one token: recorded steps
    EXPECT_LT(largest_difference(all_logits(*two, golden.tokens, chunk), all_logits(*one, golden.tokens, chunk)), 1e-3)
        << chunk;
}

TEST_P(CudaParallel, WholeExpertsGiveTheLogitsOfOneGpu) {
  if (!has_two_gpus()) GTEST_SKIP() << "there are not two GPUs";
  const Golden golden = read_golden(GetParam());
  const auto one = start(golden.name, 1);
  if (one->config().experts.n == 0) GTEST_SKIP() << "no experts";
  const auto two = start(golden.name, 2, true);
  for (const int chunk : {512, 7, 1})
    EXPECT_LT(largest_difference(all_logits(*two, golden.tokens, chunk), all_logits(*one, golden.tokens, chunk)), 1e-3)
        << chunk;
}

INSTANTIATE_TEST_SUITE_P(Models, CudaParallel, testing::ValuesIn(golden_names()),
                         [](const auto& i) { return i.param; });

}  // namespace
}  // namespace ingot
