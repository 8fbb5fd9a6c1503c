#include "model/speech/speech_rules.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace ingot {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

void forbid(std::span<float> logits, int32_t first, int64_t end) {
  const auto n = static_cast<int64_t>(logits.size());
  for (int64_t i = std::clamp<int64_t>(first, 0, n); i < std::min(end, n); ++i)
    logits[static_cast<size_t>(i)] = kForbidden;
}

}  // namespace

// exp(x) for x <= 0 with a relative error below 1e-6, in a form that compilers turn into vectors: 2^n times a polynomial.
static float exp_of(float x) {
  const float y = (x > -80.0f ? x : -80.0f) * 1.44269504f, n = std::floor(y), f = (y - n) * 0.693147181f;
  const float series =
      1 + f * (1 + f * (0.5f + f * (0.166666667f + f * (0.0416666667f + f * (0.00833333333f + f * 0.00138888889f)))));
  return series * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

double log_sum_exp(std::span<const float> logits) {
  const float largest = logits.empty() ? kForbidden : *std::ranges::max_element(logits);
  if (largest == kForbidden) return kForbidden;
  double total = 0;
  constexpr size_t kAtOnce = 512;
  for (size_t at = 0; at < logits.size(); at += kAtOnce) {
    const auto part = logits.subspan(at, std::min(kAtOnce, logits.size() - at));
    float sums[8] = {};  // of every eighth
    size_t i = 0;
    for (; i + 8 <= part.size(); i += 8)
      for (size_t k = 0; k < 8; ++k) sums[k] += exp_of(part[i + k] - largest);
    for (; i < part.size(); ++i) sums[0] += exp_of(part[i] - largest);
    for (const float sum : sums) total += sum;
  }
  return largest + std::log(total);
}

SpeechRules::SpeechRules(const SpeechTokens& tokens, std::span<const int32_t> suppressed,
                         std::span<const int32_t> first_suppressed, int latest_start, bool with_times)
    : tokens_(tokens),
      suppressed_(suppressed.begin(), suppressed.end()),
      first_suppressed_(first_suppressed.begin(), first_suppressed.end()),
      latest_start_(latest_start),
      with_times_(with_times) {}

void SpeechRules::apply(std::span<float> logits, std::span<const int32_t> written) const {
  for (const int32_t id : suppressed_) forbid(logits, id, int64_t{id} + 1);
  if (written.empty())
    for (const int32_t id : first_suppressed_) forbid(logits, id, int64_t{id} + 1);
  // Tokens of languages, tasks and prompts are no part of an answer.
  forbid(logits, tokens_.start, tokens_.no_times + 1);
  if (with_times_) {
    apply_times(logits, written);
  } else {
    forbid(logits, tokens_.first_time, std::ssize(logits));
  }
}

void SpeechRules::apply_times(std::span<float> logits, std::span<const int32_t> written) const {
  const int64_t n_vocab = std::ssize(logits);
  const int32_t first_time = tokens_.first_time;
  forbid(logits, first_time + tokens_.n_times, n_vocab);
  const size_t n = written.size();
  const bool is_after_time = n >= 1 && tokens_.is_time(written[n - 1]);
  const bool is_after_pair = n < 2 || tokens_.is_time(written[n - 2]);
  if (is_after_time && is_after_pair) forbid(logits, first_time, n_vocab);  // text follows a pair
  if (is_after_time && !is_after_pair) forbid(logits, 0, tokens_.end);      // a time or the end follows the text's end
  for (size_t i = n; i-- > 0;) {
    if (!tokens_.is_time(written[i])) continue;
    // The next segment may begin where this one ends. A segment has a length.
    const bool may_repeat = is_after_time && !is_after_pair;
    forbid(logits, first_time, int64_t{written[i]} + (may_repeat ? 0 : 1));
    break;
  }
  if (n == 0) {
    forbid(logits, 0, first_time);
    forbid(logits, first_time + latest_start_ + 1, n_vocab);
  }
  const auto times = logits.subspan(static_cast<size_t>(first_time)),
             text = logits.first(static_cast<size_t>(first_time));
  if (log_sum_exp(times) > *std::ranges::max_element(text)) forbid(logits, 0, first_time);
}

}  // namespace ingot
