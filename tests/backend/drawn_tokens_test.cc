// A batch may name tokens of the last sample before wait() returns them.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "backend/backend.h"
#include "base/error.h"
#include "test_seed.h"

namespace ingot {
namespace {

constexpr int kVocab = 300, kDim = 64, kRows = 6;

std::unique_ptr<Backend> backend_of(const std::string& device) {
  try {
    return create_backend({.device = device, .n_threads = 2});
  } catch (const UsageError&) {
    return nullptr;
  }
}

class DrawnTokens : public testing::TestWithParam<const char*> {};

TEST_P(DrawnTokens, AreWhatTheLastSampleDrew) {
  const auto backend = backend_of(GetParam());
  if (!backend) GTEST_SKIP() << "no " << GetParam();
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> table(kVocab * kDim), logits(kRows * kVocab);
  for (float& v : table) v = std::nearbyint(8 * normal(random));  // exact in every type
  for (float& v : logits) v = normal(random);
  const Weight weight =
      backend->prepare({.format = Format::F32, .n_out = kVocab, .n_in = kDim, .codes = table.data()}, kForEmbedding);
  const Tensor x = backend->alloc(DType::kF32, kRows, kDim), rows = backend->alloc(DType::kF32, kRows, kVocab);
  backend->upload(rows, logits.data());

  const std::vector<int32_t> positions = {5, 0, 9, 2, 7, 1}, kv_len = {6, 1, 10, 3, 8, 2},
                             q_start = {0, 1, 2, 3, 4, 5, 6};
  const std::vector<int32_t> named = {drawn_token(3), 17, drawn_token(0), drawn_token(5), 250, drawn_token(3)};
  const std::vector<int32_t> blocks(kRows);
  const auto batch = [&](const std::vector<int32_t>& tokens) {
    return Batch{.tokens = tokens,
                 .positions = positions,
                 .q_start = q_start,
                 .kv_len = kv_len,
                 .block_table = blocks,
                 .max_blocks = 1,
                 .logit_rows = {}};
  };
  // Drawn by argmax only, by a device's sampler, and by the host's sampler.
  for (const SamplingParams& params : {SamplingParams{.temperature = 0}, SamplingParams{.temperature = 1},
                                       SamplingParams{.temperature = 1, .typical_p = 0.9f},
                                       SamplingParams{.temperature = 1, .xtc_probability = 0.5f}}) {
    std::vector<SampleRow> wanted;
    for (int i = 0; i < kRows; ++i) wanted.push_back({.params = &params, .position = i});
    wanted[1].unwanted = true;
    backend->sample(rows, wanted);
    backend->begin(batch(named));
    backend->embed(x, weight, 1.0f);
    const std::vector<Sampled> drawn = backend->wait();
    ASSERT_EQ(drawn.size(), static_cast<size_t>(kRows));
    std::vector<float> got(kRows * kDim);
    backend->download(got.data(), x);
    for (int i = 0; i < kRows; ++i) {
      const int32_t token = named[i] >= 0 ? named[i] : drawn[-1 - named[i]].token;
      ASSERT_TRUE(token >= 0 && token < kVocab);
      for (int j = 0; j < kDim; ++j) ASSERT_EQ(got[i * kDim + j], table[token * kDim + j]) << "row " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, DrawnTokens, testing::Values("ref", "cpu", "cuda"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace ingot
