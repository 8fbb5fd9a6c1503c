// DraftLengths: decides how many drafts each sequence brings to a step, so that speculation is never slower.
//
// A draft is worth the probability that the output gets a token from it. Its cost is the time of one more row in the
// step. Step times are measured, for each number of sequences and of rows. A choice takes the most valuable drafts of
// all sequences, as many as give the most tokens a second. If that is not clearly more than without drafts, there are
// none. So the drafts become fewer where acceptance is low, and where rows cost much: in large batches.
//
// Times are the least of the last few: what slows the machine for a moment does not count. Old times are forgotten, and
// then measured again. More rows than have been measured are assumed to cost as much as the measured ones, row by row,
// and are tried; at most twice as many in a step. Without a time of a step without drafts, the next step has none.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "engine/speculate/proposer.h"

namespace ingot {

// The drafts that one sequence offers to a step.
struct DraftOffer {
  std::array<double, kMaxDrafts> gains;  // of each draft: the probability that it and all drafts before it are right
  int n = 0;                             // number of drafts
  int n_chosen = 0;                      // the answer: how many of them the step verifies
};

class DraftLengths {
 public:
  explicit DraftLengths(int max_seqs) { order_.reserve(static_cast<size_t>(max_seqs) * kMaxDrafts); }
  // A step of n_seqs sequences and n_rows tokens, drafts included, took so long.
  void add_step(int n_seqs, int n_rows, double seconds);
  // Sets n_chosen of all offers. Without drafts, the step has n_rows tokens, and n_seqs sequences get a token from it.
  void choose(std::span<DraftOffer> offers, int n_seqs, int n_rows);
  // The time of such a step: measured, or between measured ones, or assumed. Empty: no smaller step has been measured.
  std::optional<double> seconds_of(int n_seqs, int n_rows) const;

 private:
  struct Times {
    std::array<double, 4> last{};
    int64_t n = 0;      // measured
    int64_t when = 0;   // of the last one, in steps
    double least() const;
  };
  using Curve = std::map<int, Times>;  // by rows (bucket_of)

  bool is_known(const Times& times) const;
  bool is_measured(int n_seqs, int n_rows) const;
  double most_rows(int n_seqs) const;
  const Curve* curve_of(int n_seqs) const;
  static int bucket_of(int n);
  static double rows_of(int bucket);

  std::map<int, Curve> curves_;  // by sequences (bucket_of)
  int64_t n_steps_ = 0;
  std::vector<std::pair<double, DraftOffer*>> order_;
};

}  // namespace ingot
