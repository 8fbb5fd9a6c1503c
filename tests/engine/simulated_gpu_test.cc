// Drafts on a simulated GPU with the step times of a large model. The engine's choice is about as fast as the best
// fixed number of drafts, and never slower than no drafts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backend/philox.h"
#include "timed_runner.h"

namespace ingot {
namespace {

// One token of an 8b model takes 4 ms. If all sequences have the same number of rows, at most 8, the step is recorded
// at its first use and then replayed. Other steps take longer. Times vary a little, and a few steps are slow.
class SimulatedGpu {
 public:
  explicit SimulatedGpu(uint64_t seed) : seed_(seed) {}
  StepCost operator()(const Batch& batch) {
    const int n_rows = batch.n_tokens(), n_seqs = batch.n_seqs(), q_len = batch.q_len(0);
    const bool is_replayed = q_len <= 8 && n_rows == n_seqs * q_len;
    const bool is_first = is_replayed && q_len > 1 && ++n_steps_of_[{n_seqs, q_len}] == 1;
    double us = 4020 + 140 * (std::min(n_rows, 8) - 1) + 40 * std::max(0, n_rows - 8);
    if (!is_replayed || is_first) us += 250;
    us *= 1 + 0.02 * uniform_draw(seed_, n_draws_++);
    if (uniform_draw(seed_, n_draws_++) < 0.005) us *= 2;
    return {.device = us, .host = 40, .late = is_first ? 4000.0 : 0.0};
  }

 private:
  const uint64_t seed_;
  uint64_t n_draws_ = 0;
  std::map<std::pair<int, int>, int> n_steps_of_;
};

FakeOptions options(int max_seqs, bool overlaps) {
  FakeOptions fake;
  fake.info = {.n_vocab = 1000,
               .n_ctx = 1024,
               .block_size = 16,
               .pools = {{.n_blocks = 600}},
               .max_batch_tokens = 512,
               .max_seqs = max_seqs,
               .max_logits = max_seqs + std::max(kMaxDrafts, 4 * max_seqs)};
  fake.info.overlaps = overlaps;
  fake.check_every = 100;
  return fake;
}

class SimulatedGpuTest : public testing::TestWithParam<std::tuple<bool, int, double>> {};

TEST_P(SimulatedGpuTest, AdaptsToTheBestNumberOfDrafts) {
  const auto [overlaps, max_seqs, p] = GetParam();
  const FakeOptions fake = options(max_seqs, overlaps);
  const std::vector<uint64_t> seeds = {1, 2, 3};  // the same random numbers for all numbers of drafts
  const auto milliseconds = [&](const auto& make) {
    double us = 0;
    for (const uint64_t seed : seeds)
      us += run(fake, SimulatedGpu(seed), max_seqs == 1 ? 4 : 16, max_seqs == 1 ? 900 : 500, make(seed)).us;
    return us / 1e3;
  };
  const double off = milliseconds([](uint64_t) -> MakeProposer { return nullptr; });
  double best = off;
  int n_best = 0;
  for (const int n : max_seqs == 1 ? std::vector{1, 2, 3, 4, 7, 15} : std::vector{1, 2, 3, 4}) {
    const double ms = milliseconds([&](uint64_t seed) { return oracle(p, seed, n); });
    if (ms < best) best = ms, n_best = n;
  }
  const double chosen = milliseconds([&](uint64_t seed) { return oracle(p, seed); });
  const std::string about = fmt::format("seeds {}: off {:.0f} ms, always {} drafts {:.0f} ms, chosen {:.0f} ms",
                                        fmt::join(seeds, " "), off, n_best, best, chosen);
  EXPECT_LT(chosen, best / 0.95) << about;
  EXPECT_LT(chosen, off / 0.98) << about;
}

INSTANTIATE_TEST_SUITE_P(Gpus, SimulatedGpuTest,
                         testing::Combine(testing::Bool(), testing::Values(1, 8), testing::Values(0.0, 0.3, 0.8, 1.0)),
                         [](const auto& test) {
                           return fmt::format("{}{}Seqs{}", std::get<0>(test.param) ? "Overlapping" : "InTurn",
                                              std::get<1>(test.param), static_cast<int>(100 * std::get<2>(test.param)));
                         });

}  // namespace
}  // namespace ingot
