// The engine with a clock that the test sets. Drafts make the output faster where possible, and never slower.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <utility>

#include "engine/speculate/ngram.h"
#include "test_seed.h"
#include "timed_runner.h"

namespace ingot {
namespace {

using Cost = double (*)(int n_rows);  // microseconds of a step; the host takes 10 us more

double memory_bound(int n_rows) { return 100 + n_rows; }
double compute_bound(int n_rows) { return 20.0 * n_rows; }
double tiled(int n_rows) { return 60 + 50 * std::ceil(n_rows / 8.0); }

FakeOptions options(bool overlaps) {
  FakeOptions fake;
  fake.info = {.n_vocab = 1000,
               .n_ctx = 1024,
               .block_size = 16,
               .pools = {{.n_blocks = 2100}},
               .max_batch_tokens = 512,
               .max_seqs = 32,
               .max_logits = 32 + 64};
  fake.info.overlaps = overlaps;
  fake.check_every = 100;
  return fake;
}

Outcome run(bool overlaps, Cost cost, int n_seqs, int n_output, const MakeProposer& make) {
  return run(
      options(overlaps), [&](const Batch& b) { return StepCost{cost(b.n_tokens())}; }, n_seqs, n_output, make);
}

class SpeculationTime : public testing::TestWithParam<bool> {};

TEST_P(SpeculationTime, RightGuessesAreFast) {
  for (const int n_seqs : {1, 4}) {
    const double without = run(GetParam(), memory_bound, n_seqs, 600, nullptr).us;
    const Outcome with = run(GetParam(), memory_bound, n_seqs, 600, oracle(1));
    EXPECT_LT(with.us, without / (n_seqs == 1 ? 8 : 5)) << n_seqs;
    const Outcome most = run(GetParam(), memory_bound, n_seqs, 600, oracle(0.8));
    EXPECT_LT(most.us, without / 2.2) << n_seqs;
  }
  EXPECT_LT(run(GetParam(), tiled, 1, 600, oracle(0.8)).us, run(GetParam(), tiled, 1, 600, nullptr).us / 3);
}

TEST_P(SpeculationTime, IsNeverSlower) {
  for (const Cost cost : {memory_bound, compute_bound, tiled}) {
    for (const int n_seqs : {1, 2, 5, 16, 32}) {
      const double without = run(GetParam(), cost, n_seqs, 600, nullptr).us;
      for (const double p : {0.0, 0.1, 0.3, 0.5, 0.7, 0.9}) {
        const Outcome with = run(GetParam(), cost, n_seqs, 600, oracle(p));
        EXPECT_LT(with.us, without * 1.02)
            << n_seqs << " sequences, p " << p << ", "
            << (cost == memory_bound ? "memory"
                : cost == tiled      ? "tiles"
                                     : "compute")
            << ", " << with.gauges.n_draft_tokens << " drafts, " << with.gauges.n_accepted_tokens << " accepted";
      }
    }
  }
}

// Steps whose times are drawn, some of them many times too long, as the first ones of a real machine are.
TEST_P(SpeculationTime, TheGainIsAtMostTheTokensOfAStep) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 draw(seed);
  int n_known = 0;
  for (int turn = 0; turn < 60; ++turn) {
    const int most_slow = 1 + static_cast<int>(draw() % 40);  // the first steps
    const double slow = 1 + static_cast<double>(draw() % 50), of_row = static_cast<double>(draw() % 30);
    int n_steps = 0;
    TimedRunner runner(options(GetParam()), [&](const Batch& b) {
      const double usual = 1 + static_cast<double>(draw() % 100) / 50;
      const double factor = n_steps++ < most_slow && draw() % 2 == 0 ? slow : usual;
      return StepCost{factor * (100 + of_row * b.n_tokens())};
    });
    Engine engine(runner, {.now = [] { return fake_time; }});
    std::vector<std::shared_ptr<Collector>> sinks;
    const int n_seqs = 1 + static_cast<int>(draw() % 3);
    for (int i = 0; i < n_seqs; ++i) {
      Request request{.prompt = {i, 2, 3}, .max_tokens = 1 + static_cast<int>(draw() % 200)};
      const Expected expected = expected_output(request, runner.info());
      request.proposer = oracle(static_cast<double>(draw() % 11) / 10, seed)(request, expected);
      request.sink = sinks.emplace_back(std::make_shared<Collector>());
      engine.submit(std::move(request));
    }
    while (engine.step()) {}
    for (const auto& sink : sinks) {
      const Usage& usage = sink->finish->usage;
      EXPECT_LE(usage.draft_gain, static_cast<double>(usage.output_tokens) / usage.sampling_steps);
      if (usage.sampling_steps < 16) EXPECT_EQ(usage.draft_gain, 0);
      n_known += usage.draft_gain > 0;
    }
  }
  EXPECT_GT(n_known, 10);
}

// Drafts that take time, like those of a draft model.
MakeProposer costly(double p, int us) {
  struct Costly final : Proposer {
    Costly(std::shared_ptr<Proposer> of, double p, int time)
        : oracle(std::move(of)), probability(static_cast<float>(p)), us(time) {}
    Proposal propose(std::span<const int32_t> history, int n, const GoesOn& goes_on) override {
      Proposal guess = oracle->propose(history, n);
      do {
        fake_time += std::chrono::microseconds(us);
        guess.probabilities.push_back(probability);
      } while (guess.probabilities.size() < guess.tokens.size() && goes_on(probability));
      guess.tokens.resize(guess.probabilities.size());
      return guess;
    }
    bool is_costly() const override { return true; }
    const std::shared_ptr<Proposer> oracle;
    const float probability;
    const int us;
  };
  return [=](const Request& request, const Expected& expected) {
    return std::make_shared<Costly>(oracle(p)(request, expected), p, us);
  };
}

TEST_P(SpeculationTime, CostlyGuessesAreNeverSlower) {
  const double without = run(GetParam(), memory_bound, 1, 900, nullptr).us;
  for (const double p : {0.0, 0.2, 0.9}) {
    const Outcome with = run(GetParam(), memory_bound, 1, 900, costly(p, 30));
    EXPECT_LT(with.us, without * (p > 0.5 ? 0.7 : 1.02)) << "p " << p << ", " << with.gauges.n_drafts << " guesses";
  }
}

// If drafts of several sequences do not pay, one trial of four steps finds that out, and the next one comes much later.
// If drafts pay, the trial also finds that out, although the first draft of each sequence takes the time of 20 steps.
TEST_P(SpeculationTime, CostlyGuessesOfSeveralSequences) {
  struct SlowStart final : Proposer {
    explicit SlowStart(std::shared_ptr<Proposer> of) : oracle(std::move(of)) {}
    Proposal propose(std::span<const int32_t> history, int n, const GoesOn&) override {
      Proposal guess = oracle->propose(history, n);
      fake_time += std::chrono::microseconds(std::exchange(reads_text, false) ? 2000 : 5);
      guess.probabilities.assign(guess.tokens.size(), 0.9f);
      return guess;
    }
    bool is_costly() const override { return true; }
    const std::shared_ptr<Proposer> oracle;
    bool reads_text = true;
  };
  const auto slow_start = [](const Request& request, const Expected& expected) {
    return std::make_shared<SlowStart>(oracle(0.9)(request, expected));
  };
  for (const int n_seqs : {2, 4, 16}) {
    const double without = run(GetParam(), memory_bound, n_seqs, 900, nullptr).us;
    const double trial = 4 * (memory_bound(2 * n_seqs) + 210 * n_seqs);
    for (const double p : {0.0, 0.9})
      EXPECT_LT(run(GetParam(), memory_bound, n_seqs, 900, costly(p, 210)).us, without * 1.04 + trial)
          << n_seqs << ", p " << p;
    if (n_seqs <= 4) {
      EXPECT_LT(run(GetParam(), memory_bound, n_seqs, 900, slow_start).us, without * 0.9) << n_seqs;
    }
  }
}

// A draft that takes the time of two steps does not pay, even if it is right. So it is measured and then hardly tried
// again.
TEST_P(SpeculationTime, GuessesThatCannotPayAreSeldomTried) {
  const double without = run(GetParam(), memory_bound, 1, 900, nullptr).us;
  const Outcome with = run(GetParam(), memory_bound, 1, 900, costly(1, 210));
  EXPECT_GE(with.gauges.n_drafts, 2);
  EXPECT_LE(with.gauges.n_drafts, 8);
  EXPECT_LT(with.us, without * 1.02);
}

// An unpredictable text has no repeated pairs, so there are no drafts to verify.
TEST_P(SpeculationTime, NgramOnRandomTextCostsNothing) {
  const auto ngram = [](const Request&, const Expected&) { return std::make_shared<NgramProposer>(); };
  const Outcome without = run(GetParam(), memory_bound, 1, 900, nullptr),
                with = run(GetParam(), memory_bound, 1, 900, ngram);
  EXPECT_LE(with.us, without.us * 1.002);
  EXPECT_LE(with.gauges.n_draft_tokens, 4);
}

// When a sequence's guesses become wrong, it gets no drafts. When the unverified guesses become right, it gets drafts
// again.
TEST_P(SpeculationTime, FollowsTheText) {
  struct Changing final : Proposer {
    explicit Changing(std::vector<int32_t> all) : output(std::move(all)) {}
    Proposal propose(std::span<const int32_t> history, int n, const GoesOn&) override {
      const size_t begin = history.size() - 3;
      Proposal proposal;
      for (size_t i = begin; i < std::min(output.size(), begin + static_cast<size_t>(n)); ++i)
        proposal.tokens.push_back(i >= 200 && i < 600 ? output[i] ^ 1 : output[i]);
      return proposal;
    }
    std::vector<int32_t> output;
  };
  const auto make = [](const Request&, const Expected& e) { return std::make_shared<Changing>(e.tokens); };
  const double third = run(GetParam(), memory_bound, 1, 200, make).us;
  const Outcome two = run(GetParam(), memory_bound, 1, 600, make), all = run(GetParam(), memory_bound, 1, 900, make);
  const double plain = run(GetParam(), memory_bound, 1, 400, nullptr).us;
  EXPECT_LT(two.us - third, plain * 1.05);
  EXPECT_LT(all.us - two.us, plain / 400 * 300 / 3);
}

// So a GPU has recorded these steps before the first request.
TEST_P(SpeculationTime, AWarmUpBringsDraftsWhereStepsOverlap) {
  for (const bool has_head : {false, true}) {
    FakeOptions fake = options(GetParam());
    if (has_head) fake.info.draft_head = DraftHeadKind::kMtp;
    std::set<int> n_rows;
    TimedRunner runner(fake, [&](const Batch& b) { return n_rows.insert(b.n_tokens()), StepCost{100}; });
    Engine(runner, {.now = [] { return fake_time; }}).warm_up();
    EXPECT_EQ(n_rows, GetParam() ? std::set({1, 2, 3, 4, 5, 6, 7, 8}) : std::set({1, 2})) << has_head;
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, SpeculationTime, testing::Bool(),
                         [](const auto& test) { return std::string(test.param ? "Overlapping" : "InTurn"); });

}  // namespace
}  // namespace ingot
