// The demo model's perplexity on its held-out text on the CPU. Its matrices have each format that ingot writes, on the
// best and the last but one of the instruction sets. The perplexity must be within 0.2 % of that of the same values as
// F32.
//
// Rounding activations to int8 moves single tokens by more, up and down, so the comparison uses 3,072 tokens. ref would
// need minutes for them. So F32 on the CPU replaces ref, and is itself compared with ref over the first two windows.
// The last set, the portable one, is left out because it is slow; each set's products have their own tests. Formats
// without an encoder are left out because random weights give the perplexity of noise.
#include <gtest/gtest.h>

#include <set>

#include "backend/cpu/kernel_choice.h"
#include "backend/cpu/kernels.h"
#include "model/rewritten_demo.h"

namespace ingot {
namespace {

class CpuPerplexity : public testing::TestWithParam<Format> {};

TEST_P(CpuPerplexity, IsThatOfRef) {
  constexpr int kWindows = 24, kWindowsOfRef = 2;
  const std::vector<int32_t> tokens = heldout_tokens();
  const auto matrices = std::make_shared<Rewritten>(GetParam());
  const auto on_cpu = [&](const char* isa, int n_windows, bool decoded) {
    return demo_perplexity(matrices, {.device = "cpu", .n_threads = 2, .isa = isa}, tokens, n_windows, decoded);
  };
  EXPECT_NEAR(on_cpu("", kWindowsOfRef, true) / demo_perplexity(matrices, {.device = "ref"}, tokens, kWindowsOfRef), 1,
              1e-4);
  const double want = on_cpu("", kWindows, true);
  RecordProperty("f32", fmt::format("{:.5f}", want));
  const auto sets = cpu::measured_kernels();
  for (const cpu::Kernels* kernels : std::set{sets.front(), sets.back()}) {
    const double got = on_cpu(kernels->isa, kWindows, false);
    RecordProperty(kernels->isa, fmt::format("{:.5f}", got));
    EXPECT_NEAR(got / want, 1, 0.002) << kernels->isa << ": " << got << " for " << want;
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
