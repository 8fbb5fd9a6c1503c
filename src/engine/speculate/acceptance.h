// Acceptance: measures how often drafts equal the tokens of the output, by level of evidence. The engine keeps one
// Acceptance for each sequence, and one for all sequences, which is the prior for new sequences. Drafts that no step
// verified are counted too: the engine compares them with the later output. So the engine notices that a text became
// predictable without verifying drafts.
#pragma once
#include <algorithm>
#include <array>
#include <bit>

namespace ingot {

class Acceptance {
 public:
  // memory: after this many more drafts, a draft has about a third of its weight.
  explicit Acceptance(double memory) : forget_(1 - 1 / memory) {}

  void add(int evidence, bool is_right) {
    Level& level = levels_[level_of(evidence)];
    level.n *= forget_, level.n_right *= forget_;
    level.n += 1, level.n_right += is_right;
  }
  // The probability that a draft with this evidence is right. The prior has the weight of 8 drafts. With less weight,
  // chance would give similar sequences different numbers of drafts.
  double of(int evidence, const Acceptance& prior) const {
    return levels_[level_of(evidence)].share(8, prior.of(evidence));
  }
  // The same without a prior. The estimate of the next lower level has the weight of two drafts. The lowest level
  // starts from 0.5.
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
