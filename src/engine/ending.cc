#include "engine/ending.h"

#include <algorithm>

#include "base/log.h"

namespace ingot {
namespace {

double ms_between(Clock::time_point begin, Clock::time_point end) {
  return std::max(0.0, std::chrono::duration<double, std::milli>(end - begin).count());
}

constexpr int kLeastGainSteps = 16;  // the times of fewer steps say nothing about drafts

}  // namespace

Usage usage_of(const Sequence& sequence) {
  Usage usage;
  usage.prompt_tokens = sequence.n_prompt;
  usage.cached_tokens = sequence.n_cached;
  usage.output_tokens = sequence.n_output();
  usage.draft_tokens = sequence.n_drafted;
  usage.accepted_tokens = sequence.n_accepted;
  usage.sampling_steps = sequence.n_sampling_steps;
  if (sequence.n_drafted > 0 && sequence.n_gain_steps >= kLeastGainSteps && sequence.step_seconds > 0)
    usage.draft_gain = std::min(sequence.plain_seconds / sequence.step_seconds,
                                static_cast<double>(usage.output_tokens) / usage.sampling_steps);
  usage.preemptions = sequence.n_preempted;
  const bool started = sequence.first_step != Clock::time_point{};
  usage.queue_ms = ms_between(sequence.submitted, started ? sequence.first_step : Clock::now());
  if (usage.output_tokens > 0) {
    usage.prefill_ms = ms_between(sequence.first_step, sequence.first_token);
    usage.decode_ms = ms_between(sequence.first_token, sequence.last_token);
  }
  return usage;
}

void tell_end(RequestId id, TokenSink& sink, const Finish& finish) noexcept {
  try {
    sink.on_finish(finish);
  } catch (const std::exception& error) {
    log_warn("request {}: its consumer failed at the end: {}", id, error.what());
  }
}

void tell_end(const Sequence& sequence, const Finish& finish) noexcept {
  tell_end(sequence.id, *sequence.request.sink, finish);
  for (const auto& sink : sequence.request.more_sinks) tell_end(sequence.id, *sink, finish);
}

}  // namespace ingot
