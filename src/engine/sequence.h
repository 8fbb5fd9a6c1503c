// Sequence: a request on its way through the engine. The engine owns it, the scheduler moves it between waiting and
// running.
#pragma once
#include <chrono>
#include <cstdint>
#include <vector>

#include "engine/request.h"

namespace ingot {

using Clock = std::chrono::steady_clock;

struct Sequence {
  RequestId id = 0;
  Request request;
  std::vector<int32_t> tokens;  // prompt and output
  int n_prompt = 0;
  int max_len = 0;              // tokens at which it ends

  // Tokens whose keys and values the steps planned so far write. The rest of `tokens` is still to be computed: many of
  // a new or preempted sequence, one of a sequence that decodes. There is no other phase.
  int n_computed = 0;
  std::vector<int32_t> blocks;  // KV block of each block_size tokens

  int n_preempted = 0;
  Clock::time_point submitted, first_step, first_token, last_token;

  int len() const { return static_cast<int>(tokens.size()); }
  int n_output() const { return len() - n_prompt; }
  int n_todo() const { return len() - n_computed; }
};

// Ids grow, so the smaller one came first. Whoever came first is served first and preempted last.
inline bool senior(const Sequence* a, const Sequence* b) { return a->id < b->id; }

}  // namespace ingot
