#include "backend/cpu/step_threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/log.h"

namespace ingot::cpu {

size_t StepThreads::place_of(const void* program) {
  const auto found = std::ranges::find(programs_, program, &ProgramSteps::program);
  const auto place = static_cast<size_t>(found - programs_.begin());
  if (found == programs_.end()) programs_.push_back({program, {}});
  return place;
}

StepThreads::Steps* StepThreads::steps_of(const void* program, int n_tokens) {
  if (n_tokens < 1 || n_tokens > kMostTokens || most_ == 1) return nullptr;
  const size_t place = place_of(program);
  std::optional<Steps>& found = programs_[place].steps[static_cast<size_t>(n_tokens - 1)];
  if (!found) {
    const int kept = known(place, n_tokens);
    found = Steps{.choice = ThreadChoice(most_, kept), .kept = kept};
  }
  return &*found;
}

int StepThreads::n_threads(const void* program, int n_tokens) {
  const Steps* steps = steps_of(program, n_tokens);
  return steps != nullptr ? steps->choice.n_threads() : most_;
}

void StepThreads::add(const void* program, int n_tokens, double seconds) {
  Steps* steps = steps_of(program, n_tokens);
  if (steps != nullptr && steps->choice.add(seconds)) keep(*steps, place_of(program), n_tokens);
}

std::string StepThreads::key(size_t place, int n_tokens) const {
  return fmt::format("threads, version 1: {}; program {}; {} threads; {} tokens", subject_, place, most_, n_tokens);
}

// The choice of an earlier run; 0 if there is none.
int StepThreads::known(size_t place, int n_tokens) const {
  const auto bytes = folder_.find(key(place, n_tokens));
  int n = 0;
  if (bytes) std::from_chars(bytes->data(), bytes->data() + bytes->size(), n);
  return n;
}

// All threads are the choice of a run that finds nothing, so they need no file unless one says otherwise.
void StepThreads::keep(Steps& steps, size_t place, int n_tokens) {
  const int n_threads = steps.choice.n_threads();
  if (n_threads == steps.kept || (n_threads == most_ && steps.kept == 0)) return;
  steps.kept = n_threads;
  try {
    folder_.store(key(place, n_tokens), std::to_string(n_threads));
  } catch (const Error& error) {
    log_warn("the number of threads is not kept for the next run: {}", error.what());
  }
}

}  // namespace ingot::cpu
