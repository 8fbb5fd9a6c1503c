#include "model/speech/speech_rules.h"

#include <algorithm>
#include <limits>

#include "backend/sampler.h"

namespace ingot {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

void forbid(std::span<float> logits, int32_t first, int64_t end) {
  const auto n = static_cast<int64_t>(logits.size());
  for (int64_t i = std::clamp<int64_t>(first, 0, n); i < std::min(end, n); ++i)
    logits[static_cast<size_t>(i)] = kForbidden;
}

}  // namespace

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
  if (log_sum_exp(times) > largest_logit(text)) forbid(logits, 0, first_time);
}

}  // namespace ingot
