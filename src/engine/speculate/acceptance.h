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
  // The probability that a draft with this evidence is right, by a few drafts of `prior` and all own ones.
  double of(int evidence, const Acceptance& prior) const {
    constexpr double kPriorDrafts = 4;
    const Level& level = levels_[level_of(evidence)];
    return (level.n_right + kPriorDrafts * prior.of(evidence)) / (level.n + kPriorDrafts);
  }
  // The same without a prior: a guess counts as two drafts.
  double of(int evidence) const {
    const Level& level = levels_[level_of(evidence)];
    return (level.n_right + 1) / (level.n + 2);
  }

 private:
  struct Level {
    double n = 0, n_right = 0;  // drafts
  };
  // 0 to 1, 2 to 3, 4 to 7, 8 to 15, and more.
  static size_t level_of(int evidence) {
    return std::min<size_t>(4, static_cast<size_t>(std::bit_width(static_cast<unsigned>(evidence) >> 1)));
  }

  double forget_;
  std::array<Level, 5> levels_{};
};

}  // namespace ingot
