// The cost of a finished request, for the metrics and for `usage`.
#include <algorithm>

#include "server/answers/generation.h"

namespace ingot {

void GenerationRun::count(RequestEnd end) {
  const auto seconds = [](Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  };
  const Totals sum = totals();
  model_->metrics.on_end(end,
                         {.prompt_tokens = sum.prompt_tokens,
                          .output_tokens = sum.completion_tokens,
                          .cached_tokens = sum.cached_tokens,
                          .max_tokens = max_tokens(spec_.prompts[0]),
                          .queue_s = sum.queue_ms / 1e3,
                          .prefill_s = sum.prefill_ms / 1e3,
                          .decode_s = sum.decode_ms / 1e3,
                          .e2e_s = seconds(begin_, Clock::now()),
                          .first_token_s = first_token_ == Clock::time_point{} ? 0 : seconds(begin_, first_token_),
                          .has_first_token = first_token_ != Clock::time_point{}});
}

// The maximum number of tokens of an answer to the prompt.
int GenerationRun::max_tokens(const std::vector<int32_t>& prompt) const {
  const int room = model_->n_ctx() - static_cast<int>(prompt.size());
  return spec_.max_tokens < 0 ? room : std::min(spec_.max_tokens, room);
}

Totals GenerationRun::totals() const {
  Totals sum;
  sum.image_tokens = spec_.image_tokens;
  sum.audio_tokens = spec_.audio_tokens;
  int fewest = spec_.max_tokens;
  for (const auto& prompt : spec_.prompts) {
    sum.prompt_tokens += static_cast<int>(prompt.size());
    fewest = std::min(fewest, max_tokens(prompt));
  }
  if (fewest < spec_.max_tokens) sum.max_tokens_clamped = fewest;
  for (size_t i = 0; i < choices_.size(); i += static_cast<size_t>(spec_.n))
    sum.cached_tokens += choices_[i].usage.cached_tokens;
  int most_tokens = 0;
  for (const Choice& choice : choices_) {
    sum.sampling_steps += choice.usage.sampling_steps;
    if (choice.usage.output_tokens > most_tokens) {
      most_tokens = choice.usage.output_tokens;
      sum.draft_gain = choice.usage.draft_gain;
    }
    sum.completion_tokens += choice.usage.output_tokens;
    sum.accepted_drafts += choice.usage.accepted_tokens;
    sum.rejected_drafts += choice.usage.draft_tokens - choice.usage.accepted_tokens;
    sum.queue_ms = std::max(sum.queue_ms, choice.usage.queue_ms);
    sum.prefill_ms = std::max(sum.prefill_ms, choice.usage.prefill_ms);
    sum.decode_ms = std::max(sum.decode_ms, choice.usage.decode_ms);
  }
  return sum;
}

}  // namespace ingot
