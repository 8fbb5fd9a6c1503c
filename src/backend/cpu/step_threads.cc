#include "backend/cpu/step_threads.h"

#include <fmt/format.h>

#include <charconv>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace ingot::cpu {

ThreadChoice* StepThreads::choice(int n_tokens) {
  if (n_tokens < 1 || n_tokens > kMostTokens || most_ == 1) return nullptr;
  std::optional<ThreadChoice>& found = choices_[static_cast<size_t>(n_tokens - 1)];
  if (!found) found.emplace(most_, known(n_tokens));
  return &*found;
}

int StepThreads::n_threads(int n_tokens) {
  const ThreadChoice* found = choice(n_tokens);
  return found != nullptr ? found->n_threads() : most_;
}

void StepThreads::add(int n_tokens, double seconds) {
  ThreadChoice* found = choice(n_tokens);
  if (found != nullptr && found->add(seconds)) keep(n_tokens, found->n_threads());
}

std::string StepThreads::key(int n_tokens) const {
  return fmt::format("threads, version 1: {}; {} threads; {} tokens", subject_, most_, n_tokens);
}

// The choice of an earlier run; 0 if there is none.
int StepThreads::known(int n_tokens) const {
  const auto bytes = folder_.find(key(n_tokens));
  int n = 0;
  if (bytes) std::from_chars(bytes->data(), bytes->data() + bytes->size(), n);
  return n;
}

// All threads are the choice of a run that finds nothing, so they need no file unless one says otherwise.
void StepThreads::keep(int n_tokens, int n_threads) {
  const int before = known(n_tokens);
  if (n_threads == before || (n_threads == most_ && before == 0)) return;
  try {
    folder_.store(key(n_tokens), std::to_string(n_threads));
  } catch (const Error& error) {
    log_warn("the number of threads is not kept for the next run: {}", error.what());
  }
}

}  // namespace ingot::cpu
