#include "engine/speculate/draft_lengths.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ingot {
namespace {

constexpr double kLeastFirstGain = .05;  // a first draft that is right less often is not considered
constexpr double kLeastSorted = 1.03;    // required of uneven over even drafts, because gains are estimates
constexpr int64_t kEnough = 2;           // measurements until a bucket counts as known
constexpr int64_t kForgotten = 512;      // measurements expire after this many steps without a new one
constexpr int64_t kFirstWait = 4;        // see is_due; doubled by each measurement, up to 6 times
constexpr double kAssumedShare = .2;     // assumed cost of a draft, in row times of a step without drafts

}  // namespace

double DraftLengths::Times::least() const {
  return *std::min_element(last.begin(), last.begin() + std::min<int64_t>(n, static_cast<int64_t>(last.size())));
}

bool DraftLengths::is_recent(const Times& times) const { return times.n > 0 && n_steps_ - times.when <= kForgotten; }

bool DraftLengths::is_known(const Times& times) const { return times.n >= kEnough && is_recent(times); }

// Every number up to 16; then numbers within an eighth of each other, up to 2^17.
size_t DraftLengths::bucket_of(int n) {
  if (n <= 16) return static_cast<size_t>(n);
  return std::min(std::tuple_size_v<Curve> - 1, static_cast<size_t>(std::lround(8 * std::log2(n))) - 16);
}

double DraftLengths::number_of(size_t bucket) {
  return bucket <= 16 ? static_cast<double>(bucket) : std::exp2(static_cast<double>(bucket + 16) / 8);
}

void DraftLengths::add_step(const StepShape& step, double seconds, bool made_ahead) {
  constexpr double kLastStep = 1.0 / 16, kStepWithoutDrafts = 1.0 / 512;  // weights in ahead_
  const bool has_drafts = step.n_rows > step.n_seqs;
  if (thinks_ahead_ && !has_drafts) ahead_ -= kStepWithoutDrafts * std::max(0.0, ahead_ - kHopedShare);
  if (const auto plain = plain_seconds(step.n_seqs); thinks_ahead_ && has_drafts && plain) {
    const double share = made_ahead ? std::min(1.0, seconds / measured_seconds(step, *plain)) : 1;
    ahead_ += kLastStep * (share - ahead_);
  }
  if (made_ahead) return;
  Times& times = step.n_rows <= step.n_seqs ? plain_[bucket_of(step.n_seqs)]
                                            : (step.is_even ? even_ : uneven_)[bucket_of(step.n_rows)];
  ++n_steps_;
  if (!is_recent(times)) times.n = 0;
  times.last[static_cast<size_t>(times.n++) % times.last.size()] = seconds;
  times.when = n_steps_;
}

// The time of a step without drafts. If the time is not known, derives a lower bound from the known times. A step takes
// at least as long as one with fewer sequences. A step with fewer sequences takes at least its sequences' share of the
// time of a larger step.
std::optional<double> DraftLengths::plain_seconds(int n_seqs) const {
  const size_t bucket = bucket_of(n_seqs);
  if (is_known(plain_[bucket])) return plain_[bucket].least();
  std::optional<double> least;
  for (size_t at = 1; at < plain_.size(); ++at)
    if (is_known(plain_[at]))
      least = std::max(least.value_or(0), plain_[at].least() * std::min(1.0, n_seqs / number_of(at)));
  return least;
}

// Until an uneven step is measured, its time is assumed to be that of an even step.
std::optional<double> DraftLengths::seconds_of(const StepShape& step) const {
  const std::optional<double> plain = plain_seconds(step.n_seqs);
  if (!plain || step.n_rows <= step.n_seqs) return plain;
  return share_of_time() * measured_seconds(step, *plain);
}

// Without drafts that were made ahead. plain: the time of a step without drafts.
double DraftLengths::measured_seconds(const StepShape& step, double plain) const {
  const size_t first = bucket_of(step.n_seqs), bucket = bucket_of(step.n_rows);
  const auto knows = [&](const Times& times) { return is_known(times); };
  const bool as_even = step.is_even || std::none_of(uneven_.begin() + first, uneven_.end(), knows);
  const Curve& curve = as_even ? even_ : uneven_;
  struct Point {
    double n_rows, seconds;
  };
  Point below = {static_cast<double>(step.n_seqs), plain};
  for (size_t at = bucket; at > first; --at) {
    if (!is_known(curve[at])) continue;
    below = {number_of(at), curve[at].least()};
    break;
  }
  for (size_t at = bucket; at < curve.size(); ++at) {
    if (!is_known(curve[at])) continue;
    const Point above = {number_of(at), curve[at].least()};
    if (above.n_rows <= below.n_rows) return above.seconds;
    const double share = (step.n_rows - below.n_rows) / (above.n_rows - below.n_rows);
    return below.seconds + std::clamp(share, 0.0, 1.0) * (above.seconds - below.seconds);
  }
  const double a_row = below.n_rows > step.n_seqs ? std::max(0.0, below.seconds - plain) / (below.n_rows - step.n_seqs)
                                                  : kAssumedShare * plain / step.n_seqs;
  return below.seconds + a_row * std::max(0.0, step.n_rows - below.n_rows);
}

// The number of rows of the largest step that may be tried.
double DraftLengths::most_rows(int n_seqs) const {
  double known = n_seqs;
  for (size_t at = bucket_of(n_seqs); at < even_.size(); ++at)
    if (is_known(even_[at]) || is_known(uneven_[at])) known = std::max(known, number_of(at));
  return 2 * known;
}

// Even if all drafts are right, a step is not worth its time if a smaller step takes less time for each token.
int DraftLengths::most_drafts(int n_rows) const {
  constexpr double kSlightlyMore = 1.05;  // less may be noise
  const double plain = plain_seconds(1).value_or(0);
  const auto can_pay = [&](size_t at) {
    return least_improvement_ * share_of_time() * even_[at].least() < number_of(at) * plain;
  };
  const double all = max_drafts_ + n_rows;
  double max_rows = most_rows(1), best = std::numeric_limits<double>::infinity();  // best: least seconds for a row
  double before_cliff = all;  // the cliff: the least number that is not worth its time, beyond all that are
  for (size_t at = bucket_of(n_rows) + 1; at < even_.size(); ++at) {
    if (!is_recent(even_[at])) continue;
    const double of_row = even_[at].least() / number_of(at);
    if (can_pay(at) && of_row < kSlightlyMore * best) {
      max_rows = std::max(max_rows, 2 * number_of(at));
      before_cliff = all;
      best = std::min(best, of_row);
    } else if (is_known(even_[at])) {
      before_cliff = std::min(before_cliff, number_of(at) - 1);
    }
  }
  return static_cast<int>(std::max(0.0, std::min(max_rows, before_cliff) - n_rows));
}

// Whether the next step should run without drafts, to measure its time. The first measurements are often too long, for
// example because caches are cold. So the next ones follow soon, and later ones less and less often.
bool DraftLengths::is_due(int n_seqs) const {
  const Times& times = plain_[bucket_of(n_seqs)];
  return times.n > 0 && n_steps_ - times.when >= kFirstWait << std::min<int64_t>(times.n, 6);
}

void DraftLengths::add_speedup(double plain_seconds, double seconds) {
  constexpr double kLastStep = 1.0 / 64;
  plain_sum_ += kLastStep * (plain_seconds - plain_sum_);
  sum_ += kLastStep * (seconds - sum_);
}

// Compares the time of a row, with making its draft, with the time that drafts need for a token. The first draft costs
// more than others, for example because the draft model's weights are no longer cached, so the first draft does not
// count.
double DraftLengths::least_gain(int n_rows, int n) const {
  constexpr double kLeastSpeedup = 1.2, kMostSpeedup = 3;
  const double speedup = sum_ > 0 ? std::clamp(plain_sum_ / sum_, kLeastSpeedup, kMostSpeedup) : kLeastSpeedup;
  const std::optional<double> plain = plain_seconds(1);
  if (!plain || *plain <= 0) return 1;
  const size_t several = bucket_of(n_rows + 1) + 1;
  if (std::none_of(even_.begin() + several, even_.end(), [&](const Times& times) { return is_known(times); }))
    return speedup * kAssumedShare;
  const auto seconds = [&](int n_drafts) { return *seconds_of({1, n_rows + n_drafts}); };
  const double usual = (seconds(4) - seconds(1)) / 3;
  return speedup * std::max(usual, n > 1 ? seconds_of_row(n_rows + n) : 0.0) / *plain;
}

// The time that this row costs, if it costs more than others: for example, a GPU replays only steps with few rows. The
// rows that may follow share the cost. 0 if the time of this step or of the step without the row is not known.
double DraftLengths::seconds_of_row(int n_rows) const {
  const Times &before = even_[bucket_of(n_rows - 1)], &with = even_[bucket_of(n_rows)];
  if (!is_known(before) || !is_known(with)) return 0;
  double least = with.least() - before.least();
  for (int rows = n_rows + 1; rows <= std::min(kMaxDrafts, max_drafts_) + 1; ++rows)
    if (const Times& all = even_[bucket_of(rows)]; is_known(all))
      least = std::min(least, (all.least() - before.least()) / (rows - n_rows + 1));
  return least;
}

bool DraftLengths::has_measured(int n_rows) const {
  const auto first = static_cast<ptrdiff_t>(bucket_of(n_rows)) + 1;
  const auto recent = [&](const Times& times) { return is_recent(times); };
  return std::any_of(even_.begin() + first, even_.end(), recent) ||
         std::any_of(uneven_.begin() + first, uneven_.end(), recent);
}

bool DraftLengths::can_pay(int n_seqs, int n_rows) const {
  const std::optional<double> plain = seconds_of({n_seqs, n_rows, n_seqs == 1 || n_rows == n_seqs});
  for (int n = 1; plain && n <= std::min(kMaxDrafts, max_drafts_); ++n) {
    const double seconds = *seconds_of({n_seqs, n_rows + n, n_seqs == 1});
    if (*plain * (n_seqs + n) > least_improvement_ * n_seqs * seconds) return true;
  }
  return false;
}

void DraftLengths::choose(std::span<DraftOffer> offers, int n_seqs, int n_rows) {
  const auto may_pay = [](const DraftOffer& offer) { return offer.n > 0 && offer.gains[0] > kLeastFirstGain; };
  const std::optional<double> plain = seconds_of({n_seqs, n_rows, n_seqs == 1 || n_rows == n_seqs});
  order_.clear();
  int n_of_each = static_cast<int>(offers.size()) == n_seqs && n_rows == n_seqs ? kMaxDrafts : 0;
  for (DraftOffer& offer : offers) {
    offer.n_chosen = 0;
    n_of_each = std::min(n_of_each, offer.n);
    for (int i = 0; i < offer.n; ++i) order_.emplace_back(offer.gains[i], &offer);
  }
  if (std::ranges::none_of(offers, may_pay) || !plain || (n_rows == n_seqs && is_due(n_seqs))) return;
  const double max_drafts = std::min<double>(max_drafts_, most_rows(n_seqs) - n_rows);
  double best = least_improvement_ * n_seqs / *plain;
  const auto is_best = [&](double n_tokens, int n_drafts, bool is_even) {
    const double rate = n_tokens / *seconds_of({n_seqs, n_rows + n_drafts, is_even});
    return rate > best && (best = rate, true);
  };
  double n_tokens = n_seqs;
  int best_of_each = 0;
  for (int n = 1; n <= n_of_each && n * n_seqs <= max_drafts; ++n) {
    for (const DraftOffer& offer : offers) n_tokens += offer.gains[n - 1];
    if (is_best(n_tokens, n * n_seqs, true)) best_of_each = n;
  }
  if (best_of_each > 0) best *= kLeastSorted;
  // The gains of a sequence decrease, so the most valuable drafts are the first ones of their sequences.
  std::ranges::sort(order_, [](const auto& a, const auto& b) { return a.first > b.first; });
  n_tokens = n_seqs;
  int best_of_all = 0, longest = 0;
  for (int n = 1; n <= static_cast<int>(order_.size()) && n <= max_drafts; ++n) {
    const auto& [gain, offer] = order_[n - 1];
    n_tokens += gain;
    longest = std::max(longest, ++offer->n_chosen);
    if (is_best(n_tokens, n, n_seqs == 1 || (n_rows == n_seqs && n == longest * n_seqs))) best_of_all = n;
  }
  for (DraftOffer& offer : offers) offer.n_chosen = best_of_all > 0 ? 0 : best_of_each;
  for (int i = 0; i < best_of_all; ++i) ++order_[i].second->n_chosen;
}

}  // namespace ingot
