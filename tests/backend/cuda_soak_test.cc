// Runs steps of 1 to 8 rows on the whole grid of the GPU, for as many minutes as INGOT_SOAK_MINUTES says, to find races
// that a short test misses. Each round draws a decoder, rows and contexts. A step must give the same bits each time,
// and nearly those of single kernels. Without the variable, the test is skipped. `bench/gpu/run.sh soak` runs it.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "backend/cuda/create_cuda.h"
#include "base/error.h"
#include "layers_rig.h"
#include "ops_error.h"
#include "test_seed.h"

namespace ingot {
namespace {

// Few shapes, because each has to be compiled once. Of each kind of weights that the grid's kernels tell apart; the
// widths make some blocks idle, or give them several tiles.
const LayersCase kSoakCases[] = {
    {.name = "q4_0", .format = Format::Q4_0, .past = 0, .head_dim = 128},
    {.name = "q4_0, rows of two chunks",
     .format = Format::Q4_0,
     .past = 0,
     .dim = 4096,
     .ffn = 4352,
     .n_heads = 8,
     .head_dim = 128},
    {.name = "q4_0, more tiles than a batch",
     .format = Format::Q4_0,
     .past = 0,
     .dim = 2048,
     .ffn = 19456,
     .n_heads = 16,
     .head_dim = 128,
     .n_layers = 2},
    {.name = "q4_k, fp8 cache",
     .format = Format::Q4_K,
     .past = 0,
     .dim = 768,
     .ffn = 2048,
     .n_heads = 8,
     .n_kv_heads = 4,
     .head_dim = 128,
     .n_layers = 8,
     .kv = DType::kE4M3},
    {.name = "q6_k, scales of 16", .format = Format::Q6_K, .past = 0, .dim = 256, .ffn = 768, .n_heads = 4},
    {.name = "q8_0, norms of heads",
     .format = Format::Q8_0,
     .past = 0,
     .dim = 512,
     .ffn = 1280,
     .n_heads = 16,
     .head_dim = 128,
     .biases = true,
     .head_norms = true},
    {.name = "mxfp4", .format = Format::MXFP4, .past = 0, .dim = 512, .ffn = 1024, .n_heads = 8},
    {.name = "f8_e4m3",
     .format = Format::F8_E4M3,
     .past = 0,
     .dim = 2048,
     .ffn = 2304,
     .n_heads = 16,
     .head_dim = 128,
     .n_layers = 4},
};

void soak(const LayersCase& c, const std::vector<int>& q_lens, uint64_t seed) {
  constexpr int kBursts = 40, kStepsOfBurst = 25;
  const auto backend = create_cuda_backend({.device = "cuda"});
  OpByOp other(create_cuda_backend({.device = "cuda"}));
  Decoder plain(other, c, seed, q_lens), recorded(*backend, c, seed, q_lens);
  const double bound = c.kv == DType::kE4M3 ? 4e-2 : 2e-2;
  for (int step = 0; step < Decoder::kSteps; ++step) {
    plain.begin(step);
    plain.run();
    const std::vector<float> want = plain.logits();
    recorded.begin(step);
    std::vector<float> first;
    for (int burst = 0; burst < kBursts; ++burst) {
      recorded.poison();
      for (int i = 0; i < kStepsOfBurst; ++i) recorded.run();
      const std::vector<float> got = recorded.logits();
      ASSERT_LE(relative_error(got, want), bound) << "step " << step << ", burst " << burst;
      ASSERT_EQ(recorded.hidden_is_poisoned(), has_clusters(*backend)) << "the step did not run on the grid";
      if (burst == 0) first = got;
      ASSERT_TRUE(got == first) << "step " << step << ", burst " << burst << ": " << relative_error(got, first);
    }
  }
}

TEST(CudaSoak, StepsOnTheGridGiveTheSameBits) {
  const char* given = std::getenv("INGOT_SOAK_MINUTES");
  if (given == nullptr) GTEST_SKIP() << "INGOT_SOAK_MINUTES is not set";
  if (!why_no_cuda().empty()) GTEST_SKIP() << why_no_cuda();
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double, std::ratio<60>>(std::atof(given));
  // A failed round is repeated by its seed: INGOT_TEST_SEED.
  for (unsigned seed = test_seed(), round = 0; round == 0 || std::chrono::steady_clock::now() < end; ++seed, ++round) {
    std::mt19937 random(seed);
    LayersCase c = kSoakCases[random() % std::size(kSoakCases)];
    constexpr unsigned kPasts[] = {1, 40, 300, 2000};
    c.past = static_cast<int>(random() % kPasts[random() % std::size(kPasts)]);
    // Each row has its own sequence, or all rows have the same.
    const int n_rows = 1 + static_cast<int>(random() % 8);
    std::vector<int> q_lens = {n_rows};
    if (random() % 2 == 0) q_lens.assign(static_cast<size_t>(n_rows), 1);
    std::printf("soak: seed %u: %s, %d rows of %zu sequences after %d tokens\n", seed, c.name, n_rows, q_lens.size(),
                c.past);
    std::fflush(stdout);
    soak(c, q_lens, seed);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace ingot
