#include "engine/speculate/draft_lengths.h"

#include <algorithm>
#include <cmath>

namespace ingot {
namespace {

constexpr double kLeastGain = 1.05;    // in tokens a second; less may be noise
constexpr int64_t kEnough = 2;         // times that make a number of rows known
constexpr int64_t kForgotten = 1024;   // after this many steps without a new time
constexpr double kAssumedShare = .2;   // of a row's part of the smallest step: the cost of more rows, until it is known

}  // namespace

double DraftLengths::Times::least() const {
  return *std::min_element(last.begin(), last.begin() + std::min<int64_t>(n, static_cast<int64_t>(last.size())));
}

bool DraftLengths::is_known(const Times& times) const {
  return times.n >= kEnough && n_steps_ - times.when <= kForgotten;
}

// Every number up to 16; then numbers within an eighth of each other.
int DraftLengths::bucket_of(int n) { return n <= 16 ? n : static_cast<int>(std::lround(8 * std::log2(n))) - 16; }

double DraftLengths::rows_of(int bucket) { return bucket <= 16 ? bucket : std::exp2((bucket + 16) / 8.0); }

void DraftLengths::add_step(int n_seqs, int n_rows, double seconds) {
  Times& times = curves_[bucket_of(n_seqs)][bucket_of(n_rows)];
  ++n_steps_;
  if (n_steps_ - times.when > kForgotten) times.n = 0;
  times.last[static_cast<size_t>(times.n++) % times.last.size()] = seconds;
  times.when = n_steps_;
}

const DraftLengths::Curve* DraftLengths::curve_of(int n_seqs) const {
  const auto curve = curves_.find(bucket_of(n_seqs));
  return curve == curves_.end() ? nullptr : &curve->second;
}

std::optional<double> DraftLengths::seconds_of(int n_seqs, int n_rows) const {
  const Curve* curve = curve_of(n_seqs);
  if (curve == nullptr) return std::nullopt;
  const int bucket = bucket_of(n_rows);
  std::optional<std::pair<int, double>> first, below;
  for (const auto& [at, times] : *curve) {
    if (!is_known(times)) continue;
    const double here = times.least();
    if (at == bucket) return here;
    if (at > bucket) {
      if (!below) return std::nullopt;
      const double share = (n_rows - rows_of(below->first)) / (rows_of(at) - rows_of(below->first));
      return below->second + std::clamp(share, 0.0, 1.0) * (here - below->second);
    }
    below = {at, here};
    if (!first) first = below;
  }
  if (!below) return std::nullopt;
  const double more_rows = n_rows - rows_of(below->first), known_rows = rows_of(below->first) - rows_of(first->first);
  const double a_row = known_rows > 0 ? std::max(0.0, below->second - first->second) / known_rows
                                      : kAssumedShare * below->second / rows_of(below->first);
  return below->second + a_row * more_rows;
}

// The rows of the largest step that may be tried.
double DraftLengths::most_rows(int n_seqs) const {
  double known = 0;
  for (const auto& [at, times] : *curve_of(n_seqs))
    if (is_known(times)) known = rows_of(at);
  return 2 * known;
}

bool DraftLengths::is_measured(int n_seqs, int n_rows) const {
  const Curve* curve = curve_of(n_seqs);
  if (curve == nullptr) return false;
  const auto times = curve->find(bucket_of(n_rows));
  return times != curve->end() && is_known(times->second);
}

void DraftLengths::choose(std::span<DraftOffer> offers, int n_seqs, int n_rows) {
  order_.clear();
  for (DraftOffer& offer : offers) {
    offer.n_chosen = 0;
    for (int i = 0; i < offer.n; ++i) order_.emplace_back(offer.gains[i], &offer);
  }
  const auto may_pay = [](const DraftOffer& offer) { return offer.n > 0 && offer.gains[0] > kLeastGain - 1; };
  if (std::ranges::none_of(offers, may_pay) || !is_measured(n_seqs, n_rows)) return;
  std::ranges::sort(order_, [](const auto& a, const auto& b) { return a.first > b.first; });
  const double limit = most_rows(n_seqs);
  double best = kLeastGain * n_seqs / *seconds_of(n_seqs, n_rows), n_tokens = n_seqs;
  size_t n_best = 0;
  for (size_t i = 0; i < order_.size() && n_rows + static_cast<double>(i) < limit; ++i) {
    n_tokens += order_[i].first;
    const double rate = n_tokens / *seconds_of(n_seqs, n_rows + static_cast<int>(i) + 1);
    if (rate > best) best = rate, n_best = i + 1;
  }
  // The gains of a sequence decrease, so the chosen drafts are its first ones.
  for (size_t i = 0; i < n_best; ++i) ++order_[i].second->n_chosen;
}

}  // namespace ingot
