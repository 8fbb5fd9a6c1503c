// DraftLengths: the chosen numbers of drafts for step times that the test sets.
#include "engine/speculate/draft_lengths.h"

#include <gtest/gtest.h>

#include <functional>

namespace ingot {
namespace {

using Seconds = std::function<double(int n_rows)>;
constexpr int kManyDrafts = 1000;

DraftOffer offer(double p, int n = kMaxDrafts) {
  DraftOffer made{.gains = {}, .n = n};
  double gain = 1;
  for (int i = 0; i < n; ++i) made.gains[i] = gain *= p;
  return made;
}

// The shape of the step that DraftLengths chooses.
StepShape choose(DraftLengths& lengths, std::vector<DraftOffer>& offers) {
  StepShape step{.n_seqs = static_cast<int>(offers.size())};
  lengths.choose(offers, step.n_seqs, step.n_seqs);
  step.n_rows = step.n_seqs;
  for (const DraftOffer& o : offers) {
    step.n_rows += o.n_chosen;
    step.is_even &= o.n_chosen == offers[0].n_chosen;
  }
  return step;
}

// Runs steps of n_seqs sequences with the same acceptance. Returns the drafts of the last step.
std::vector<int> last_drafts(DraftLengths& lengths, int n_seqs, double p, const Seconds& seconds, int n_steps = 60) {
  std::vector<int> chosen;
  for (int i = 0; i < n_steps; ++i) {
    std::vector<DraftOffer> offers(n_seqs, offer(p));
    const StepShape step = choose(lengths, offers);
    lengths.add_step(step, seconds(step.n_rows));
    chosen.clear();
    for (const DraftOffer& o : offers) chosen.push_back(o.n_chosen);
  }
  return chosen;
}

TEST(DraftLengths, WithoutATimeThereAreNoDrafts) {
  DraftLengths lengths(4, kManyDrafts);
  std::vector<DraftOffer> offers(1, offer(1));
  lengths.choose(offers, 1, 1);
  EXPECT_EQ(offers[0].n_chosen, 0);
  lengths.add_step({1, 1}, 1);
  lengths.choose(offers, 1, 1);
  EXPECT_EQ(offers[0].n_chosen, 0);  // a single time may be a cold start
  lengths.add_step({1, 1}, 1);
  lengths.choose(offers, 1, 1);
  EXPECT_EQ(offers[0].n_chosen, 1);  // the number of rows grows step by step
}

// The first draft costs 30, every other one 10. A token costs 100.
TEST(DraftLengths, ADraftMustPayForItsRow) {
  DraftLengths lengths(4, kManyDrafts);
  EXPECT_EQ(lengths.least_gain(1, 2), 1);  // nothing is measured
  for (int i = 0; i < 2; ++i) lengths.add_step({1, 1}, 100);
  const double assumed = lengths.least_gain(1, 2);
  EXPECT_GT(assumed, 0.1);
  EXPECT_LT(assumed, 0.5);
  for (const int n_rows : {2, 5})
    for (int i = 0; i < 2; ++i) lengths.add_step({1, n_rows}, 120 + 10.0 * (n_rows - 1));
  for (const int n : {1, 2, 6}) {
    EXPECT_GT(lengths.least_gain(1, n), 0.1);
    EXPECT_LT(lengths.least_gain(1, n), 0.15);
  }
}

// A row costs 10, and from 8 rows on, a step takes 200 longer. Eight drafts behind that cliff share its cost.
TEST(DraftLengths, DraftsMustPayForACliff) {
  DraftLengths lengths(4, kManyDrafts);
  const auto measure = [&](int n_rows) {
    for (int i = 0; i < 2; ++i)
      lengths.add_step({1, n_rows}, n_rows == 1 ? 100 : 120 + 10 * n_rows + (n_rows < 8 ? 0 : 200));
  };
  for (const int n_rows : {1, 2, 5, 7}) measure(n_rows);
  EXPECT_LT(lengths.least_gain(1, 7), 0.15);  // not known yet
  measure(8);
  EXPECT_LT(lengths.least_gain(1, 6), 0.15);
  EXPECT_GT(lengths.least_gain(1, 7), 2);  // never
  EXPECT_LT(lengths.least_gain(1, 8), 0.15);
  measure(16);
  EXPECT_NEAR(lengths.least_gain(1, 7), 1.2 * (200 + 90) / 9 / 100, 0.01);
}

// Half of the steps with drafts take half the time, because their drafts were made ahead. The others are as slow as
// without drafts ahead, and only those are stored in the curve.
TEST(DraftLengths, DraftsMadeAheadMakeStepsFaster) {
  DraftLengths lengths(4, kManyDrafts);
  lengths.set_ahead(true);
  const auto seconds_of_five = [&] { return *lengths.seconds_of({1, 5}); };
  for (int i = 0; i < 2; ++i) lengths.add_step({1, 1}, 100);
  lengths.add_step({1, 5}, 200);
  lengths.add_step({1, 5}, 200);
  EXPECT_LT(seconds_of_five(), 160);  // hoped for
  for (int i = 0; i < 200; ++i) lengths.add_step({1, 5}, 200);
  EXPECT_NEAR(seconds_of_five(), 200, 1);
  for (int i = 0; i < 200; ++i) lengths.add_step({1, 5}, i % 2 == 0 ? 100 : 200, i % 2 == 0);
  EXPECT_NEAR(seconds_of_five(), 150, 5);
  lengths.set_ahead(false);
  EXPECT_EQ(seconds_of_five(), 200);
}

// A costly proposer may make twice as many drafts as a step that has been measured once, if that step pays.
TEST(DraftLengths, CostlyGuessesGrowIfTheyPay) {
  for (const double seconds : {180.0, 220.0}) {
    DraftLengths lengths(4, 12);
    for (int i = 0; i < 2; ++i) lengths.add_step({1, 1}, 100);
    EXPECT_EQ(lengths.most_drafts(1), 1);
    lengths.add_step({1, 2}, seconds);
    EXPECT_EQ(lengths.most_drafts(1), seconds < 200 ? 3 : 1);
    lengths.add_step({1, 8}, 300);
    EXPECT_EQ(lengths.most_drafts(1), 12);  // the most of all steps
    for (int i = 0; i < 2; ++i) lengths.add_step({1, 10}, 1000);
    EXPECT_EQ(lengths.most_drafts(1), 8);  // 10 rows take too long
  }
}

// A GPU takes much longer for 8 rows than for 7, which are replayed. 16 rows pay, but a token takes less time in a step
// of 7 rows.
TEST(DraftLengths, GuessesStopBeforeLessEfficientSteps) {
  DraftLengths lengths(4, kMaxDrafts);
  for (int i = 0; i < 2; ++i) {
    lengths.add_step({1, 1}, 142);
    lengths.add_step({1, 7}, 400);
    lengths.add_step({1, 8}, 680);
    lengths.add_step({1, 16}, 1120);
  }
  EXPECT_EQ(lengths.most_drafts(1), 6);
  for (int i = 0; i < 2; ++i) lengths.add_step({1, 15}, 800);
  EXPECT_EQ(lengths.most_drafts(1), 14);
}

// A row must be worth its time at the speed that drafts reach.
TEST(DraftLengths, FastDraftsAskForMoreGain) {
  DraftLengths lengths(4, kMaxDrafts);
  for (int i = 0; i < 2; ++i) {
    lengths.add_step({1, 1}, 100);
    lengths.add_step({1, 4}, 130);
  }
  const double slow = lengths.least_gain(1, 2);
  for (int i = 0; i < 200; ++i) lengths.add_speedup(200, 100);
  EXPECT_NEAR(lengths.least_gain(1, 2), slow * 2 / 1.2, 1e-6);
  for (int i = 0; i < 500; ++i) lengths.add_speedup(90, 100);
  EXPECT_NEAR(lengths.least_gain(1, 2), slow, 1e-2);
}

// The first steps of a process are slow. Later steps without drafts show their real time, and cost little.
TEST(DraftLengths, SlowFirstStepsAreMeasuredAgain) {
  DraftLengths lengths(4, kManyDrafts);
  int n_plain = 0;
  for (int i = 0; i < 400; ++i) {
    std::vector<DraftOffer> offers(1, offer(.8));
    const StepShape step = choose(lengths, offers);
    n_plain += step.n_rows == 1;
    const double slow = i < 2 ? 3 : 1;
    lengths.add_step(step, slow * (1 + .1 * (step.n_rows - 1)));
    if (i == 30) {
      EXPECT_EQ(lengths.seconds_of({1, 1}), 1);
    }
  }
  EXPECT_GE(n_plain, 5);
  EXPECT_LE(n_plain, 8);
}

TEST(DraftLengths, FreeRowsAreAllTaken) {
  DraftLengths lengths(4, kManyDrafts);
  EXPECT_EQ(last_drafts(lengths, 1, 0.95, [](int) { return 1.0; }), std::vector<int>{kMaxDrafts});
}

// With the cost c of a row and acceptance p, n drafts give (1 + p + ... + p^n) / (1 + c n) tokens a second.
TEST(DraftLengths, TheChoiceIsTheBestOfAll) {
  for (const double p : {0.31, 0.53, 0.7, 0.8, 0.9, 0.97}) {
    for (const double c : {0.02, 0.05, 0.1, 0.2, 0.4, 1.0}) {
      int best = 0;
      double best_rate = 1.05, tokens = 1, gain = 1;
      for (int n = 1; n <= kMaxDrafts; ++n) {
        tokens += gain *= p;
        if (tokens / (1 + c * n) > best_rate) best = n, best_rate = tokens / (1 + c * n);
      }
      DraftLengths lengths(4, kManyDrafts);
      const auto seconds = [&](int n_rows) { return 1e-3 * (1 + c * (n_rows - 1)); };
      EXPECT_EQ(last_drafts(lengths, 1, p, seconds), std::vector<int>{best}) << "p " << p << ", cost " << c;
    }
  }
}

// Up to 32 rows in one step are free. Each further row costs as much as a step of one sequence. So a larger batch
// leaves room for fewer drafts.
TEST(DraftLengths, LargeBatchesBringFewerDraftsAndThenNone) {
  const auto seconds = [](int n_rows) { return 1 + 0.1 * std::max(0, n_rows - 32); };
  int last = kMaxDrafts;
  for (const int n_seqs : {1, 4, 8, 16, 32, 64}) {
    DraftLengths lengths(64, kManyDrafts);
    int n = 0;
    for (const int one : last_drafts(lengths, n_seqs, 0.7, seconds)) n += one;
    EXPECT_LE(n / n_seqs, last) << n_seqs;
    EXPECT_NEAR(n_seqs + n, n_seqs == 1 ? 16 : std::max(n_seqs, 32), n_seqs < 32 ? 3 : 0) << n_seqs;
    last = n / n_seqs;
  }
}

TEST(DraftLengths, TheMostLikelyDraftsOfAllSequencesAreTaken) {
  DraftLengths lengths(4, kManyDrafts);
  const auto seconds = [](int n_rows) { return n_rows <= 8 ? 1.0 : 10.0; };
  for (int step = 0; step < 40; ++step) {
    std::vector<DraftOffer> offers = {offer(0.9), offer(0.2), offer(0.8), offer(0)};
    const StepShape made = choose(lengths, offers);
    lengths.add_step(made, seconds(made.n_rows));
    if (step < 39) continue;
    // The free rows go to the gains 0.9, 0.81, 0.8 and 0.729.
    EXPECT_EQ(offers[0].n_chosen, 3);
    EXPECT_EQ(offers[1].n_chosen, 0);
    EXPECT_EQ(offers[2].n_chosen, 1);
    EXPECT_EQ(offers[3].n_chosen, 0);
  }
}

// A single slow step, such as the first use of a kernel, does not change the measured cost.
TEST(DraftLengths, ASlowMomentIsForgotten) {
  DraftLengths lengths(4, kManyDrafts);
  for (int step = 0; step < 100; ++step) {
    std::vector<DraftOffer> offers(1, offer(0.9));
    const StepShape made = choose(lengths, offers);
    lengths.add_step(made, step % 5 == 3 ? 20 : 1);
    if (step > 60) {
      EXPECT_GE(made.n_rows, 12) << step;
    }
  }
}

// The cost of rows may change, for example as the context grows. Times that are no longer measured expire.
TEST(DraftLengths, OldTimesAreMeasuredAgain) {
  DraftLengths lengths(4, kManyDrafts);
  EXPECT_EQ(last_drafts(lengths, 1, 0.9, [](int n_rows) { return 1.0 * n_rows; }), std::vector<int>{0});
  EXPECT_EQ(last_drafts(
                lengths, 1, 0.9, [](int) { return 1.0; }, 300),
            std::vector<int>{0});
  EXPECT_EQ(last_drafts(
                lengths, 1, 0.9, [](int) { return 1.0; }, 600),
            std::vector<int>{kMaxDrafts});
  int n_plain = 0;
  for (int i = 0; i < 3000; ++i)
    n_plain += last_drafts(
                   lengths, 1, 0.9, [](int) { return 1.0; }, 1)[0] == 0;
  EXPECT_GT(n_plain, 0);
  EXPECT_LT(n_plain, 20);  // steps without drafts, to measure the baseline
}

// If drafts never pay, trials cost little. Here a row costs as much as a step, although the guesses are good.
TEST(DraftLengths, TrialsAreCheap) {
  for (const int n_seqs : {1, 3, 16, 100}) {
    DraftLengths lengths(100, kManyDrafts);
    double with = 0, without = 0;
    const auto seconds = [](int n_rows) { return 1.0 * n_rows; };
    for (int step = 0; step < 5000; ++step) {
      std::vector<DraftOffer> offers(n_seqs, offer(0.9));
      const StepShape made = choose(lengths, offers);
      double tokens = n_seqs;
      for (const DraftOffer& o : offers)
        for (int i = 0; i < o.n_chosen; ++i) tokens += o.gains[i];
      lengths.add_step(made, seconds(made.n_rows));
      with += seconds(made.n_rows);
      without += seconds(n_seqs) * tokens / n_seqs;
    }
    EXPECT_LT(with, without * 1.01) << n_seqs;
  }
}

// Otherwise two of the eight sequences would get all drafts of the step.
TEST(DraftLengths, SequencesShareTheRoom) {
  DraftLengths lengths(8, 16);
  EXPECT_EQ(last_drafts(lengths, 8, 0.9, [](int) { return 1.0; }), std::vector<int>(8, 2));
}

// As on a GPU that replays recorded steps. Different sequences get the same number of drafts. They get different
// numbers if that pays despite the cost, or if a sequence has no guess.
TEST(DraftLengths, UnevenStepsMustBeWorthTheirPrice) {
  for (const double price : {0.01, 0.5}) {
    for (const double other : {0.0, 0.75}) {
      DraftLengths lengths(2, kManyDrafts);
      StepShape last;
      std::vector<DraftOffer> offers;
      for (int i = 0; i < 60; ++i) {
        offers = {offer(0.9), offer(other, other > 0 ? kMaxDrafts : 0)};
        last = choose(lengths, offers);
        lengths.add_step(last, 1 + 0.05 * last.n_rows + (last.is_even ? 0 : price));
      }
      EXPECT_EQ(last.is_even, price > 0.1 && other > 0) << price << ", " << other;
      EXPECT_GT(offers[0].n_chosen, 2) << price << ", " << other;
    }
  }
}

// When a sequence ends, the times of steps with one more sequence are enough for a choice.
TEST(DraftLengths, FewerSequencesGoOnAtOnce) {
  DraftLengths lengths(8, kManyDrafts);
  const auto seconds = [](int n_rows) { return 1 + 0.02 * n_rows; };
  last_drafts(lengths, 8, 0.8, seconds);
  for (const int n_seqs : {7, 6, 4})
    for (const int n : last_drafts(lengths, n_seqs, 0.8, seconds, 1)) EXPECT_GE(n, 3) << n_seqs;
}

// One sequence is as slow as four, and five are much slower. The times of one and of eight sequences do not show that
// drafts do not pay for four. So steps of four without drafts are measured.
TEST(DraftLengths, ANumberOfSequencesThatMayBeFasterIsMeasured) {
  DraftLengths lengths(8, kManyDrafts);
  const auto seconds = [](int n_rows) { return n_rows <= 4 ? 1.0 : 2.2; };
  last_drafts(lengths, 1, 0.3, seconds);
  last_drafts(lengths, 8, 0.3, seconds);
  EXPECT_EQ(last_drafts(lengths, 4, 0.5, seconds), std::vector<int>(4, 0));
}

}  // namespace
}  // namespace ingot
