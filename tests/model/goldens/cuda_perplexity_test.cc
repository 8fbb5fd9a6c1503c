// The demo model's perplexity on its held-out text on the GPU, with its matrices in each format in turn, against ref
// with the same bytes. The results agree within half a per cent, or within two per cent if activations become FP8.
// Formats without an encoder in ingot get random blocks, and the perplexity of noise. Skipped if the build has no CUDA
// or the machine no GPU.
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/rewritten_demo.h"

namespace ingot {
namespace {

class CudaPerplexity : public testing::TestWithParam<Format> {
 protected:
  void SetUp() override {
    try {
      create_backend({.device = "cuda"});
    } catch (const UsageError&) {
      GTEST_SKIP() << "no GPU";
    }
  }
  double perplexity_on(const char* device, const std::vector<int32_t>& tokens, const char* activations = "") const {
    return demo_perplexity(matrices_, {.device = device, .activations = activations}, tokens, 4);
  }

 private:
  const std::shared_ptr<Rewritten> matrices_ = std::make_shared<Rewritten>(GetParam());
};

TEST_P(CudaPerplexity, IsThatOfRef) {
  const std::vector<int32_t> tokens = heldout_tokens();
  const double want = perplexity_on("ref", tokens), got = perplexity_on("cuda", tokens);
  RecordProperty("ref", fmt::format("{:.4f}", want));
  RecordProperty("cuda", fmt::format("{:.4f}", got));
  EXPECT_NEAR(got / want, 1, GetParam() == Format::F8_E4M3 ? 0.02 : 0.005) << got << " for " << want;
  if (GetParam() != Format::F8_E4M3) return;
  const double with_halves = perplexity_on("cuda", tokens, "f16");
  EXPECT_NEAR(with_halves / want, 1, 0.005) << with_halves << " for " << want;
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaPerplexity, testing::ValuesIn(all_formats()),
                         [](const auto& i) { return std::string(ingot::info(i.param).name); });

}  // namespace
}  // namespace ingot
