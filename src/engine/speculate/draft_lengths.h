// DraftLengths: decides how many drafts each sequence brings to a step, so that speculation is never slower.
//
// A draft is worth the probability that the output gets a token from it. Its cost is the time of one more row in the
// step. Step times are measured: of steps without drafts by the number of sequences, of steps with drafts by the number
// of rows, since rows cost much the same whichever sequences bring them. A choice takes as many drafts of each
// sequence, or the most valuable drafts of all sequences, which may cost more: a GPU replays recorded steps only if all
// sequences bring the same number of rows. It takes those that give the most tokens a second. If that is not clearly
// more than without drafts, there are none. So the drafts become fewer where acceptance is low, and where rows cost
// much: in large batches.
//
// Times are the least of the last few: what slows the machine for a moment does not count. Old times are forgotten, and
// then measured again. A number of sequences that has not run without drafts gets the least time that the others
// allow: so it runs without drafts, and is measured, wherever drafts might not pay. More rows than have been measured
// are assumed to cost as much as the measured ones, row by row, and are tried; at most twice as many in a step. Without
// any time of a step without drafts, the next step has none.
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
  std::array<double, kMaxDrafts> gains;  // of each draft: the probability that it and all drafts before it are right
  int n = 0;                             // number of drafts
  int n_chosen = 0;                      // the answer: how many of them the step verifies
};

struct StepShape {
  int n_seqs = 0, n_rows = 0;  // rows: one token of each sequence and the drafts
  bool is_even = true;         // all sequences bring the same number of rows
};

class DraftLengths {
 public:
  // max_drafts: of all sequences of a step together.
  DraftLengths(int max_seqs, int max_drafts) : max_drafts_(max_drafts) {
    order_.reserve(static_cast<size_t>(max_seqs) * kMaxDrafts);
  }
  // A step took so long.
  void add_step(const StepShape& step, double seconds);
  // Sets n_chosen of all offers. Without drafts, the step has n_rows rows, and n_seqs sequences get a token from it.
  void choose(std::span<DraftOffer> offers, int n_seqs, int n_rows);
  // Whether drafts of one sequence would pay in such a step if all of them were right.
  bool can_pay(int n_seqs, int n_rows) const;
  // The time of such a step: measured, or between measured ones, or assumed. Empty: no step without drafts has been
  // measured.
  std::optional<double> seconds_of(const StepShape& step) const;

 private:
  struct Times {
    std::array<double, 4> last{};
    int64_t n = 0;      // measured
    int64_t when = 0;   // of the last one, in steps
    double least() const;
  };
  using Curve = std::array<Times, 128>;  // by bucket_of a number of sequences or rows

  bool is_recent(const Times& times) const;
  bool is_known(const Times& times) const;
  double most_rows(int n_seqs) const;
  std::optional<double> plain_seconds(int n_seqs) const;
  static size_t bucket_of(int n);
  static double number_of(size_t bucket);

  const int max_drafts_;
  Curve plain_{}, even_{}, uneven_{};  // without drafts, by sequences; with drafts, by rows
  int64_t n_steps_ = 0;
  std::vector<std::pair<double, DraftOffer*>> order_;
};

}  // namespace ingot
