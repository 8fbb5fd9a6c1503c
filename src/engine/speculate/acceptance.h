// Acceptance: measures how often drafts equal the tokens of the output, by level of evidence. The evidence is the
// length of a match in the text, or the probability that a costly proposer gives its draft. The engine keeps one
// Acceptance for each sequence, and one for all sequences with the same kind of evidence, which is the prior for new
// sequences. Drafts that no step verified are counted too: the engine compares them with the later output. So the
// engine notices that a text became predictable without verifying drafts.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace ingot {

class Acceptance {
 public:
  enum class Evidence : uint8_t { kMatch, kProbability };
  // memory: after this many more drafts, a draft has about a third of its weight. evidence: needed only of a prior.
  explicit Acceptance(double memory, Evidence evidence = Evidence::kMatch)
      : forget_(1 - 1 / memory), evidence_(evidence) {}

  // Matches of 0 to 1 tokens, 2 to 3, 4 to 7, 8 to 15, and more.
  static size_t level_of_match(int n) {
    return std::min<size_t>(4, static_cast<size_t>(std::bit_width(static_cast<unsigned>(n) >> 1)));
  }
  // Probabilities below 1/9, 1/5, 1/3, 1/2, 2/3, 4/5, 8/9, and above.
  static size_t level_of_probability(double p) {
    size_t level = 0;
    for (double odds = .125; level + 1 < kLevels && p >= odds * (1 - p); odds *= 2) ++level;
    return level;
  }

  void add(size_t number, bool is_right) {
    Level& level = levels_[number];
    level.n *= forget_, level.n_right *= forget_;
    level.n += 1, level.n_right += is_right;
  }
  // The probability that a draft with evidence of this level is right. The prior has the weight of 8 drafts. With less
  // weight, chance would give similar sequences different numbers of drafts.
  double of(size_t level, const Acceptance& prior) const { return levels_[level].share(8, prior.of(level)); }
  // The same without a prior. For matches, the estimate of the next lower level has the weight of two drafts, and the
  // lowest level starts from 0.5. Probabilities are first believed, with the weight of two drafts.
  double of(size_t level) const {
    constexpr std::array<double, kLevels> kProbabilities = {.05, .15, .27, .42, .58, .73, .84, .95};
    if (evidence_ == Evidence::kProbability) return levels_[level].share(2, kProbabilities[level]);
    double share = .5;
    for (size_t i = 0; i <= level; ++i) share = levels_[i].share(2, share);
    return share;
  }

 private:
  static constexpr size_t kLevels = 8;
  struct Level {
    double n = 0, n_right = 0;  // drafts
    double share(double n_prior, double prior) const { return (n_right + n_prior * prior) / (n + n_prior); }
  };

  double forget_;
  Evidence evidence_;
  std::array<Level, kLevels> levels_{};
};

// DraftYield: the mean number of drafts that a costly proposer makes at a time, and the mean number of those that are
// right. The number varies, because the proposer stops when further drafts are improbable.
class DraftYield {
 public:
  // memory: after this many more guesses, a guess has about a third of its weight.
  explicit DraftYield(double memory) : forget_(1 - 1 / memory) {}

  void add(int n_drafts, int n_right) {
    for (double* mean : {&n_, &n_drafts_, &n_right_}) *mean *= forget_;
    n_ += 1, n_drafts_ += n_drafts, n_right_ += n_right;
  }
  // The prior has the weight of 16 guesses, because sequences differ little. The prior itself starts with 4 guesses of
  // two drafts, one of them right.
  double n_drafts(const DraftYield& prior) const { return (n_drafts_ + 16 * prior.n_drafts()) / (n_ + 16); }
  double n_right(const DraftYield& prior) const { return (n_right_ + 16 * prior.n_right()) / (n_ + 16); }

 private:
  double n_drafts() const { return (n_drafts_ + 8) / (n_ + 4); }
  double n_right() const { return (n_right_ + 4) / (n_ + 4); }

  double forget_;
  double n_ = 0, n_drafts_ = 0, n_right_ = 0;
};

}  // namespace ingot
