// Steps whose layers the GPU runs in one launch, on thread block clusters or on the whole grid. Small decoders are
// compared with direct launches of the same ops, with a separate cache, over several positions. The test recognises
// these two kernels by buffer rows that they never write. Skipped if the build has no CUDA or the machine no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "backend/cuda/create_cuda.h"
#include "backend/recorded_steps.h"
#include "base/error.h"
#include "layers_rig.h"
#include "ops_error.h"
#include "test_seed.h"

namespace ingot {
namespace {

const LayersCase kLayersCases[] = {
    {.name = "q4_0, no past", .format = Format::Q4_0, .past = 0},
    {.name = "q4_0, as a small model is", .format = Format::Q4_0, .past = 126, .dim = 576, .ffn = 1536, .n_heads = 9, .n_kv_heads = 3, .n_layers = 5},
    {.name = "q4_0, one key head", .format = Format::Q4_0, .past = 4090, .dim = 512, .ffn = 1024, .n_heads = 8, .n_kv_heads = 1},
    {.name = "q4_0, as many heads as can be", .format = Format::Q4_0, .past = 33, .dim = 256, .ffn = 512, .n_heads = 24, .n_kv_heads = 8, .biases = true},
    {.name = "q4_0, columns beyond its warps", .format = Format::Q4_0, .past = 65, .dim = 256, .ffn = 2048, .n_heads = 4, .n_kv_heads = 4},
    {.name = "q4_1, biases", .format = Format::Q4_1, .past = 700, .dim = 512, .ffn = 1024, .n_heads = 8, .biases = true},
    {.name = "q8_0, norms of heads", .format = Format::Q8_0, .past = 32, .head_norms = true, .layout = RopeLayout::kInterleaved},
    {.name = "q8_0, bf16 cache", .format = Format::Q8_0, .past = 15, .dim = 576, .ffn = 1536, .n_heads = 9, .n_kv_heads = 3, .kv = DType::kBF16},
    {.name = "q5_k, gelu, fp8 cache", .format = Format::Q5_K, .past = 1500, .dim = 256, .ffn = 512, .n_heads = 8, .act = Activation::kGeluTanh, .kv = DType::kE4M3},
    {.name = "q4_0, window", .format = Format::Q4_0, .past = 90, .window = 40},
    {.name = "q4_0, window shorter than a step", .format = Format::Q4_0, .past = 60, .dim = 512, .ffn = 1024, .n_heads = 8, .head_dim = 128, .window = 5},
    {.name = "q4_0, bias of the output", .format = Format::Q4_0, .past = 17, .fits = false, .output_bias = true},
    {.name = "q4_0, heads of 128", .format = Format::Q4_0, .past = 17, .head_dim = 128},
    {.name = "q4_0, heads of 96", .format = Format::Q4_0, .past = 17, .fits = false, .head_dim = 96},
    {.name = "q4_0, beyond a cluster", .format = Format::Q4_0, .past = 5000, .dim = 576, .ffn = 1536, .n_heads = 9, .n_kv_heads = 3},
    {.name = "q4_0, rows of two chunks", .format = Format::Q4_0, .past = 200, .dim = 4096, .ffn = 4352, .n_heads = 8, .head_dim = 128, .n_layers = 2},
    {.name = "q4_0, more tiles than a batch", .format = Format::Q4_0, .past = 20, .dim = 2048, .ffn = 19456, .n_heads = 16, .head_dim = 128, .n_layers = 2},
    {.name = "q6_k, scales of 16", .format = Format::Q6_K, .past = 40, .dim = 256, .ffn = 768, .n_heads = 4},
    {.name = "q2_k, heads of 128, splits", .format = Format::Q2_K, .past = 3000, .dim = 512, .ffn = 1280, .n_heads = 16, .head_dim = 128, .biases = true, .head_norms = true},
    {.name = "q4_0, more than 32 splits", .format = Format::Q4_0, .past = 9000, .dim = 512, .ffn = 1024, .n_heads = 8, .head_dim = 128},
    {.name = "q4_k, heads of 128, fp8 cache", .format = Format::Q4_K, .past = 600, .dim = 768, .ffn = 2048, .n_heads = 8, .n_kv_heads = 4, .head_dim = 128, .kv = DType::kE4M3},
    {.name = "iq4_nl, a codebook", .format = Format::IQ4_NL, .past = 300, .dim = 512, .ffn = 1024, .n_heads = 8},
    {.name = "iq4_nl, heads of 64, fp8 cache", .format = Format::IQ4_NL, .past = 300, .dim = 512, .ffn = 1024, .n_heads = 8, .kv = DType::kE4M3},
    {.name = "nvfp4, scales of 16", .format = Format::NVFP4, .past = 40, .dim = 256, .ffn = 768, .n_heads = 4},
    {.name = "mxfp4, floats of 4 bits", .format = Format::MXFP4, .past = 300, .dim = 512, .ffn = 1024, .n_heads = 8, .kv = DType::kBF16},
    {.name = "f16", .format = Format::F16, .past = 17, .fits = false},
    {.name = "q4_0, experts", .format = Format::Q4_0, .past = 30, .dim = 512, .ffn = 256, .n_heads = 8, .head_norms = true, .n_experts = 16, .n_used = 4},
    {.name = "q8_0, sigmoid experts", .format = Format::Q8_0, .past = 700, .dim = 320, .ffn = 128, .n_experts = 300, .n_used = 9, .scoring = Scoring::kSigmoid},
    {.name = "q4_k, wide experts", .format = Format::Q4_K, .past = 3, .dim = 2560, .ffn = 2048, .n_heads = 20, .n_kv_heads = 4, .head_dim = 128, .n_layers = 2, .n_experts = 8},
    {.name = "mxfp4, experts by their scores", .format = Format::MXFP4, .past = 64, .dim = 512, .ffn = 384, .n_heads = 8, .n_experts = 64, .n_used = 8, .plain_choice = true},
    {.name = "iq4_nl, experts", .format = Format::IQ4_NL, .past = 40, .dim = 512, .ffn = 256, .n_heads = 8, .n_experts = 16, .n_used = 4},
    {.name = "q6_k, experts of few columns at once", .format = Format::Q6_K, .past = 20, .dim = 256, .ffn = 256, .n_heads = 8, .n_experts = 40, .n_used = 8},
    {.name = "q4_0, few columns of experts", .format = Format::Q4_0, .past = 5, .fits = false, .ffn = 96, .n_experts = 8},
    {.name = "f8_e4m3, experts", .format = Format::F8_E4M3, .past = 30, .fits = false, .dim = 512, .ffn = 256, .n_heads = 8, .n_experts = 16, .n_used = 4},
    {.name = "f8_e4m3, keys in two copies", .format = Format::F8_E4M3, .past = 100, .dim = 2048, .ffn = 2304, .n_heads = 16, .head_dim = 128, .n_layers = 2},
    {.name = "f8_e4m3", .format = Format::F8_E4M3, .past = 77, .dim = 384, .ffn = 1024, .head_dim = 128, .layout = RopeLayout::kInterleaved},
};

class CudaLayers : public testing::TestWithParam<LayersCase> {
 protected:
  void SetUp() override {
    try {
      backend = create_cuda_backend({.device = "cuda"});
    } catch (const UsageError&) {
      GTEST_SKIP() << "no GPU";
    }
  }
  std::unique_ptr<Backend> backend;
};

// A replay gives the same result as its ops one by one, to the last bit.
TEST_P(CudaLayers, ReplaysAreChecked) {
  dynamic_cast<RecordedSteps&>(*backend).check_replays();
  const uint64_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Decoder decoder(*backend, GetParam(), seed);
  for (int step = 0; step < Decoder::kSteps; ++step) {
    decoder.begin(step);
    for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(decoder.run()) << "step " << step << ", run " << i;
  }
}

// Compares the logits of some steps. is_fused: one launch runs all layers of the steps; empty: not checked. Products
// exchange f16. An element of an fp8 cache may be rounded to its neighbour, which is 6 % away. Repeated runs of a step
// must not differ at all.
void expect_equal_steps(const LayersCase& c, Decoder& plain, Decoder& recorded, std::optional<bool> is_fused) {
  const double bound = c.kv == DType::kE4M3 ? 4e-2 : 2e-2;
  for (int step = 0; step < Decoder::kSteps; ++step) {
    plain.begin(step);
    plain.run();
    const std::vector<float> want = plain.logits();
    recorded.begin(step);
    std::vector<float> first;
    for (int i = 0; i < 6; ++i) {
      recorded.poison();
      recorded.run();
      const std::vector<float> got = recorded.logits();
      ASSERT_LE(relative_error(got, want), bound) << "step " << step << ", run " << i;  // NaN fails too
      if (i == 0) first = got;
      ASSERT_TRUE(got == first) << "step " << step << ", run " << i << ": " << relative_error(got, first);
      ASSERT_EQ(recorded.hidden_is_poisoned(), is_fused.value_or(recorded.hidden_is_poisoned()))
          << "step " << step << ", run " << i;
    }
  }
}

TEST_P(CudaLayers, EqualOpsOneByOne) {
  const uint64_t seed = GetParam().plain_choice ? 7 : test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  OpByOp other(create_cuda_backend({.device = "cuda"}));
  Decoder plain(other, GetParam(), seed), recorded(*backend, GetParam(), seed);  // the same weights and tokens
  expect_equal_steps(GetParam(), plain, recorded, GetParam().fits && has_clusters(*backend));
}

// Steps of a token for each of several sequences, or of several tokens of a sequence, if they do not run on clusters.
// The grid runs up to 8 tokens, but no experts whose weights have a table of levels. With long contexts, single kernels
// may be faster.
TEST_P(CudaLayers, SeveralTokens) {
  if (GetParam().runs_on_clusters()) return;  // CudaClusters.SeveralTokens tests these
  // With 8 tokens, two experts have nearly equal scores somewhere, and two kernels may choose differently.
  if (GetParam().plain_choice) return;
  const uint64_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  OpByOp other(create_cuda_backend({.device = "cuda"}));
  for (const std::vector<int>& q_lens : {std::vector<int>{1, 1},
                                         {1, 1, 1},
                                         std::vector<int>(8, 1),
                                         {2},
                                         {3, 3},
                                         {4, 1, 2},
                                         {8}}) {
    SCOPED_TRACE(testing::PrintToString(q_lens));
    Decoder plain(other, GetParam(), seed, q_lens), recorded(*backend, GetParam(), seed, q_lens);
    const bool has_levels = GetParam().n_experts > 0 && info(GetParam().format).codebook != nullptr &&
                            GetParam().format != Format::MXFP4;
    const bool is_fused = GetParam().fits && !has_levels && has_clusters(*backend);
    expect_equal_steps(GetParam(), plain, recorded, GetParam().past < 8000 ? std::optional(is_fused) : std::nullopt);
  }
}

class CudaClusters : public CudaLayers {};

// Tokens of several sequences, and of one sequence. The more tokens, the fewer blocks a cluster has. With 50 tokens or
// more, and in recorded steps (of sequences of equal length) with 8 or more, it depends on the model whether single
// kernels are faster.
TEST_P(CudaClusters, SeveralTokens) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  OpByOp other(create_cuda_backend({.device = "cuda"}));
  for (const std::vector<int>& q_lens : {std::vector<int>{1, 1, 1},
                                         {4},
                                         {1, 3, 2},
                                         {3, 3},
                                         {1, 1, 1, 1, 1},
                                         std::vector<int>(9, 1),
                                         std::vector<int>(27, 1),
                                         {2, 7, 1},
                                         {1, 13},
                                         {9, 1, 20},
                                         {40},
                                         {1, 62, 1}}) {
    SCOPED_TRACE(testing::PrintToString(q_lens));
    const int n_tokens = std::accumulate(q_lens.begin(), q_lens.end(), 0);
    const bool is_recorded = std::ranges::count(q_lens, q_lens[0]) == std::ssize(q_lens) && q_lens[0] <= 16;
    const bool is_certain = n_tokens <= (is_recorded ? 7 : 49);
    Decoder plain(other, GetParam(), seed, q_lens), recorded(*backend, GetParam(), seed, q_lens);
    expect_equal_steps(GetParam(), plain, recorded, is_certain ? std::optional(has_clusters(*backend)) : std::nullopt);
  }
}

// Few layers that still have every kind of transfer. compute-sanitizer makes each wait of a cluster some hundred times
// slower.
TEST(SmallestCudaLayers, ForSanitizers) {
  std::unique_ptr<Backend> backend;
  try {
    backend = create_cuda_backend({.device = "cuda", .kernels = "fixed"});
  } catch (const UsageError&) {
    GTEST_SKIP() << "no GPU";
  }
  OpByOp other(create_cuda_backend({.device = "cuda", .kernels = "fixed"}));
  const uint64_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  struct Small {
    std::vector<int> q_lens;  // 1, 4, 9 or 16 tokens: clusters of 16, 16, 8 or 4 blocks
    Format format;
    int n_experts;  // layers with experts, or in F8_E4M3, run on the grid
  };
  for (const auto& [q_lens, format, n_experts] : {Small{{1}, Format::Q4_0, 0},
                                                  {{2, 2}, Format::Q8_0, 0},
                                                  {{2, 7}, Format::Q4_0, 0},
                                                  {{9, 7}, Format::Q8_0, 0},
                                                  {{1}, Format::Q4_0, 6},
                                                  {{1}, Format::F8_E4M3, 0},
                                                  {{1, 1}, Format::F8_E4M3, 0}}) {
    SCOPED_TRACE(testing::PrintToString(q_lens));
    const LayersCase c{.name = "smallest",
                       .format = format,
                       .past = 20,
                       .dim = 256,
                       .ffn = 256,
                       .n_heads = 4,
                       .n_layers = 2,
                       .head_norms = true,
                       .n_experts = n_experts};
    Decoder plain(other, c, seed, q_lens), recorded(*backend, c, seed, q_lens);
    plain.begin(0);
    plain.run();
    const std::vector<float> want = plain.logits();
    recorded.begin(0);
    recorded.run();
    EXPECT_LE(relative_error(recorded.logits(), want), 2e-2);
  }
}

std::string name_of(const testing::TestParamInfo<LayersCase>& info) {
  std::string name = info.param.name;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

std::vector<LayersCase> cases_on_clusters() {
  std::vector<LayersCase> cases;
  std::ranges::copy_if(kLayersCases, std::back_inserter(cases), &LayersCase::runs_on_clusters);
  return cases;
}

INSTANTIATE_TEST_SUITE_P(, CudaLayers, testing::ValuesIn(kLayersCases), name_of);
INSTANTIATE_TEST_SUITE_P(, CudaClusters, testing::ValuesIn(cases_on_clusters()), name_of);

}  // namespace
}  // namespace ingot
