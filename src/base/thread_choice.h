// ThreadChoice: how many threads of a pool a repeated piece of work runs on, chosen by the times of the work itself.
// More threads may be slower: another program uses some of the cores, a control group's quota stops all threads for a
// while, or the memory is busy before the last core is.
//
// The first rounds try all threads, then half of them, a quarter and so on, while that is not clearly slower. Each
// number gets kRounds rounds and is judged by their median. The caller needs these rounds anyway, so a search costs no
// time of its own.
// The largest number wins whose time is within kClearly of the best. After `again` rounds, the numbers are tried again,
// because other programs begin and end. The caller measures, so that tests need no clock.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace ingot {

class ThreadChoice {
 public:
  static constexpr int kRounds = 5;          // with one number; the first is not counted: caches are cold, threads wake
  static constexpr double kClearly = 0.03;   // a smaller difference is noise
  static constexpr double kHopeless = 0.15;  // a number slower by this ends the search downwards
  static constexpr int64_t kAgain = 2000;    // rounds

  // most: the threads of the pool. known: the choice of an earlier run, 1 to most, or 0.
  explicit ThreadChoice(int most, int known = 0) : most_(most) {
    begin();
    if (known < 1 || known > most) return;
    n_ = known;
    searching_ = false;
  }

  int n_threads() const { return n_; }  // for the next round
  bool searching() const { return searching_; }

  // The time of a round with n_threads() threads. Returns true when this round ended a search.
  bool add(double seconds) {
    if (!searching_) {
      if (most_ > 1 && ++n_since_ >= kAgain) begin();
      return false;
    }
    times_[static_cast<size_t>(n_timed_)] = seconds;
    if (++n_timed_ < kRounds) return false;
    return judge();
  }

 private:
  void begin() {
    tried_.clear();
    n_ = most_;
    n_timed_ = 0;
    searching_ = most_ > 1;
    n_since_ = 0;
  }

  bool judge() {
    const auto middle = times_.begin() + 1 + (kRounds - 2) / 2;
    std::nth_element(times_.begin() + 1, middle, times_.end());
    tried_.emplace_back(n_, *middle);
    n_timed_ = 0;
    double best = *middle;
    for (const auto& [n, seconds] : tried_) best = std::min(best, seconds);
    if (n_ > 1 && *middle <= best * (1 + kHopeless)) {
      n_ /= 2;
      return false;
    }
    for (const auto& [n, seconds] : tried_) {  // from the largest
      if (seconds > best * (1 + kClearly)) continue;
      n_ = n;
      break;
    }
    searching_ = false;
    return true;
  }

  int most_, n_ = 1, n_timed_ = 0;
  bool searching_ = false;
  int64_t n_since_ = 0;
  std::array<double, kRounds> times_{};
  std::vector<std::pair<int, double>> tried_;
};

}  // namespace ingot
