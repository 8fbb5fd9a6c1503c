// The demo model's perplexity on its held-out text on the CPU, with its matrices in each format that ingot writes and with
// the best and the last but one of the instruction sets, against ref with the same bytes: within half a per cent, since
// rounding activations to int8 moves so few tokens by up to 0.3. (The last set, the portable one, is slow; each set's
// products have tests of their own. Formats without an encoder would have random weights, and the perplexity of noise.)
#include <gtest/gtest.h>

#include <set>

#include "backend/cpu/kernel_choice.h"
#include "backend/cpu/kernels.h"
#include "rewritten_demo.h"

namespace ingot {
namespace {

class CpuPerplexity : public testing::TestWithParam<Format> {};

TEST_P(CpuPerplexity, IsThatOfRef) {
  constexpr int kWindows = 2;
  const std::vector<int32_t> tokens = heldout_tokens();
  const double want = demo_perplexity(GetParam(), {.device = "ref"}, tokens, kWindows);
  RecordProperty("ref", fmt::format("{:.5f}", want));
  const auto sets = cpu::measured_kernels();
  for (const cpu::Kernels* kernels : std::set{sets.front(), sets.back()}) {
    const double got = demo_perplexity(GetParam(), {.device = "cpu", .n_threads = 2, .isa = kernels->isa}, tokens, kWindows);
    RecordProperty(kernels->isa, fmt::format("{:.5f}", got));
    EXPECT_NEAR(got / want, 1, 0.005) << kernels->isa << ": " << got << " for " << want;
  }
}

std::vector<Format> written_formats() {
  std::vector<Format> written;
  for (const Format format : all_formats())
    if (info(format).block_size == 1 || info(format).can_encode) written.push_back(format);
  return written;
}

INSTANTIATE_TEST_SUITE_P(Formats, CpuPerplexity, testing::ValuesIn(written_formats()),
                         [](const auto& i) { return std::string(ingot::info(i.param).name); });

}  // namespace
}  // namespace ingot
