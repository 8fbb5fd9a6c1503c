// Acceptance: how often drafts were equal to the tokens of the output, by the evidence for them. The engine has one for
// each sequence, and one for all sequences, where the estimate of a new sequence begins. Drafts that no step verified
// count as well: their tokens can be compared once the output has come so far. So a text that becomes predictable is
// noticed without a trial.
#pragma once
#include <algorithm>
#include <array>
#include <bit>

namespace ingot {

class Acceptance {
 public:
  // memory: the number of drafts after which an old one counts for a third.
  explicit Acceptance(double memory) : forget_(1 - 1 / memory) {}

  void add(int evidence, bool is_right) {
    Level& level = levels_[level_of(evidence)];
    level.n *= forget_, level.n_right *= forget_;
    level.n += 1, level.n_right += is_right;
  }
  // The probability that a draft with this evidence is right, by some drafts of `prior` and all own ones. Fewer of
  // `prior` would make sequences that are alike bring different numbers of drafts, by luck.
  double of(int evidence, const Acceptance& prior) const {
    return levels_[level_of(evidence)].share(8, prior.of(evidence));
  }
  // The same without a prior: what less evidence tells counts as two drafts, and without any, half of them are right.
  double of(int evidence) const {
    double share = .5;
    for (size_t i = 0; i <= level_of(evidence); ++i) share = levels_[i].share(2, share);
    return share;
  }

 private:
  struct Level {
    double n = 0, n_right = 0;  // drafts
    double share(double n_prior, double prior) const { return (n_right + n_prior * prior) / (n + n_prior); }
  };
  // 0 to 1, 2 to 3, 4 to 7, 8 to 15, and more.
  static size_t level_of(int evidence) {
    return std::min<size_t>(4, static_cast<size_t>(std::bit_width(static_cast<unsigned>(evidence) >> 1)));
  }

  double forget_;
  std::array<Level, 5> levels_{};
};

}  // namespace ingot
