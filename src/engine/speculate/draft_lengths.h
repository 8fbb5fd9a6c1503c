// DraftLengths: chooses each sequence's number of drafts in a step, so that speculation is never slower than no
// speculation.
//
// The gain of a draft is the probability that it becomes a token of the output. Its cost is the time of one more row in
// the step. Step times are measured. Times of steps without drafts are stored by the number of sequences. Times of
// steps with drafts are stored by the number of rows, because the cost of a row depends little on its sequence.
// choose() compares two kinds of steps: the same number of drafts for each sequence, and the drafts with the highest
// gains of all sequences. The second kind may cost more, because a GPU replays recorded steps only if all sequences
// have the same number of rows. choose() picks the step with the most tokens per second, and no drafts if the
// improvement is small. So there are fewer drafts when acceptance is low and when rows are expensive, as in large
// batches.
//
// A time is the minimum of the last few measurements, so a short slowdown of the machine has no effect. Old times
// expire and are then measured again. If a number of sequences has not run without drafts, its time is the lowest that
// the known times allow. So, if drafts might not pay, the next step runs without drafts and is measured. Numbers of
// rows above the measured ones are assumed to cost as much per row, and are tried. A step has at most twice as many
// rows as the largest measured step. While no step without drafts has been measured, steps have no drafts. Later,
// some steps run without drafts, to measure their time again.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/speculate/proposer.h"

namespace ingot {

// The drafts that one sequence offers to a step.
struct DraftOffer {
  std::array<double, kMaxDrafts> gains;  // for each draft: the probability that all drafts up to this one are right
  int n = 0;                             // number of drafts
  int n_chosen = 0;                      // the result: how many of them the step verifies
};

struct StepShape {
  int n_seqs = 0, n_rows = 0;  // rows: one for each sequence and one for each draft
  bool is_even = true;         // all sequences have the same number of rows
};

class DraftLengths {
 public:
  // max_drafts: of all sequences of a step together. overlaps: steps without drafts overlap. Then a change between
  // steps with and without drafts takes time, which no step's own time contains, so drafts must improve more.
  DraftLengths(int max_seqs, int max_drafts, bool overlaps = false)
      : max_drafts_(max_drafts), least_improvement_(overlaps ? 1.1 : 1.05) {
    order_.reserve(static_cast<size_t>(max_seqs) * kMaxDrafts);
  }
  // Records the time of a completed step. made_ahead: its drafts were made during the last step, so this time does not
  // contain them.
  void add_step(const StepShape& step, double seconds, bool made_ahead = false);
  // Records how long a step with drafts of one sequence took, and how long steps without drafts would have taken.
  void add_speedup(double plain_seconds, double seconds);
  // Whether the proposer makes drafts ahead (Proposer::think_ahead) in the next steps.
  void set_ahead(bool thinks_ahead) { thinks_ahead_ = thinks_ahead; }
  // Sets n_chosen of all offers. n_rows: rows of the step without drafts. n_seqs: sequences that get a token from the
  // step.
  void choose(std::span<DraftOffer> offers, int n_seqs, int n_rows);
  // The number of drafts that a costly proposer may make for a step of one sequence. It stops at improbable drafts, so
  // one measurement of half as many rows is enough, if such a step pays when all its drafts are right. Fewer than in
  // measured steps that did not pay, because some numbers of rows take much longer, such as those that a GPU does not
  // replay.
  int most_drafts(int n_rows) const;
  // Draft n (from 1) of one sequence is worth a row of the step if it becomes a token of the output with at least this
  // probability. n_rows: rows of the step without drafts.
  double least_gain(int n_rows, int n) const;
  // Whether a step with more rows than n_rows has been measured lately.
  bool has_measured(int n_rows) const;
  // Whether drafts of one sequence would pay in such a step if all of them were right.
  bool can_pay(int n_seqs, int n_rows) const;
  // The time of a step of this shape: measured, interpolated or assumed. Empty: no step without drafts has been
  // measured.
  std::optional<double> seconds_of(const StepShape& step) const;

 private:
  static constexpr double kHopedShare = 0.7;
  struct Times {
    std::array<double, 4> last{};
    int64_t n = 0;      // measured
    int64_t when = 0;   // step number of the last measurement
    double least() const;
  };
  using Curve = std::array<Times, 128>;  // indexed by bucket_of(number of sequences or rows)

  bool is_recent(const Times& times) const;
  bool is_known(const Times& times) const;
  bool is_due(int n_seqs) const;
  double seconds_of_row(int n_rows) const;
  double measured_seconds(const StepShape& step, double plain) const;
  double share_of_time() const { return thinks_ahead_ ? ahead_ : 1; }
  double most_rows(int n_seqs) const;
  std::optional<double> plain_seconds(int n_seqs) const;
  static size_t bucket_of(int n);
  static double number_of(size_t bucket);

  const int max_drafts_;
  const double least_improvement_;  // factor in tokens per second; less may be noise
  Curve plain_{}, even_{}, uneven_{};  // plain_: without drafts, by sequences; the others: with drafts, by rows
  // The curves contain no steps with drafts that were made ahead. On average, all steps with drafts together take this
  // share of the time in the curves.
  double ahead_ = kHopedShare;
  bool thinks_ahead_ = false;
  double plain_sum_ = 0, sum_ = 0;  // weighted sums of add_speedup(), mostly of the last steps
  int64_t n_steps_ = 0;
  std::vector<std::pair<double, DraftOffer*>> order_;
};

}  // namespace ingot
