// The goldens on several GPUs: the logits of all models equal those of one GPU, or those of transformers within the error
// of f16 activations. Skipped with one GPU.
#include <gmock/gmock.h>

#include "backend/cuda/create_cuda.h"
#include "golden_models.h"
#include "model/checkpoint.h"
#include "model/parallel.h"

namespace ingot {
namespace {

std::unique_ptr<Ranks> start(const std::string& name, int n_ranks, bool whole_experts = false,
                             const std::string& activations = "f32") {
  const auto checkpoint = open_checkpoint((kModels / (name + ".gguf")).string());
  RunnerOptions options{.backend = {.device = "cuda", .activations = activations},
                        .n_ctx = n_ctx_of(name),
                        .max_batch_tokens = 512,
                        .max_logits = 512,
                        .kv_dtype = DType::kF32};
  options.parallel.n_ranks = n_ranks;
  options.parallel.whole_experts = whole_experts;
  return start_ranks(checkpoint->config(), checkpoint->weights(), options, nullptr);
}

bool has_gpus(int n) {
  try {
    create_cuda_backend({.device = "cuda:" + std::to_string(n - 1)});
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

class CudaParallel : public testing::TestWithParam<std::string> {};

TEST_P(CudaParallel, LogitsEqualThoseOfOneGpu) {
  if (!has_gpus(2)) GTEST_SKIP() << "there are not two GPUs";
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

// With f16 activations, numbers are sent to other GPUs in 16 bits. Most errors are those of one GPU, at most 0.08
// (cuda_goldens_test.cc); with two GPUs, 0.097 was measured for qwen35. In qwen3next, two experts are equally likely for
// a token: on the CPU, sums rounded to 10 bits change the choice too, and the logits by 2.4.
TEST_P(CudaParallel, F16LogitsAreNearTransformers) {
  if (GetParam() == "qwen3next") GTEST_SKIP() << "the error decides between two experts";
  const Golden golden = read_golden(GetParam());
  for (const int n : {2, 4}) {
    if (!has_gpus(n)) GTEST_SKIP() << "there are not " << n << " GPUs";
    std::unique_ptr<Ranks> ranks;
    try {
      ranks = start(golden.name, n, false, "f16");
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(),
                  testing::AnyOf(testing::HasSubstr("ranks are too many"), testing::HasSubstr("cannot share")));
      return;
    }
    for (const int chunk : {512, 7, 1})
      EXPECT_LT(largest_difference(all_logits(*ranks, golden.tokens, chunk), golden.logits), 0.12) << n << " " << chunk;
  }
}

TEST_P(CudaParallel, WholeExpertsGiveTheLogitsOfOneGpu) {
  if (!has_gpus(2)) GTEST_SKIP() << "there are not two GPUs";
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
