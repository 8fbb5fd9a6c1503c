// Sequence: a request on its way through the engine. The engine owns it, the scheduler moves it between waiting,
// running and paused.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/prefix_cache.h"
#include "engine/request.h"

namespace ingot {

struct Sequence {
  RequestId id = 0;
  Request request;
  int64_t rank = 0;             // place in the queue (Scheduler::add): the smaller one is served first
  std::vector<int32_t> tokens;  // prompt and output, as far as they have been seen; then drafts
  int n_drafts = 0;             // tokens at the end that a step verifies, or has accepted and the consumer not yet had
  std::vector<int32_t> proposed;  // drafts for its next step
  std::vector<RowDigest> rows;    // of the prompt, up to its last embedding: what stands there; empty: tokens only
  int n_prompt = 0;
  int max_len = 0;  // tokens at which it ends

  // Tokens whose keys and values the steps planned so far write. The rest is still to be computed: many tokens of a new
  // or preempted sequence, one of a sequence that decodes. There is no other phase.
  int n_computed = 0;
  int n_valid = 0;              // of these, what steps that are done have written
  std::vector<int32_t> blocks;  // KV block of each block_size tokens; -1 in front of the model's window
  int n_given_up = 0;           // so many of those
  int32_t state_in = -1,
          state_out = -1;  // slots that its next step reads (-1: it begins) and writes, in models with states
  int branch = 0;  // where others went on differently: a place for a checkpoint, like the last full block of its prompt
  int last_boundary = 0;  // which ends here
  int n_indexed = 0;      // leading blocks that the prefix cache has heard of
  CacheKey root, chain;   // of its first block and of the last indexed one

  // Steps overlap: the next one is planned before the tokens that the last one draws have been seen.
  int n_unseen = 0;       // tokens drawn and not seen: 0 or 1
  int unseen_row = 0;     // which row of the last step's draws it is
  int n_steps = 0;        // planned and not done
  bool finished = false;  // its consumer knows; steps that are not done still name its blocks
  bool spoiled = false;   // nobody else may use what it computed

  int n_scored = 0;  // tokens of the prompt that steps planned so far give log-probabilities of, where they are wanted
  std::optional<AnswerConstraint> constraint;
  std::vector<std::shared_ptr<const TokenMask>> masks;  // of its draws in the step under way; null: any token
  SamplingParams early;  // the request's sampling without its stop tokens, where it has min_tokens

  int n_cached = 0;  // tokens of its prompt found in the prefix cache, not computed
  int n_preempted = 0;
  int n_evicted = 0;  // times that it lost its blocks, to preemption or a pause
  Clock::time_point submitted, first_step, first_token, last_token;

  int len() const { return static_cast<int>(tokens.size()) - n_drafts; }
  int planned_len() const { return len() + n_unseen; }
  int n_output() const { return len() - n_prompt; }
  int n_todo() const { return planned_len() - n_computed; }
  bool scores() const { return request.prompt_logprobs >= 0 && n_scored < n_prompt - 1; }
  // Of the draw behind so many tokens of output.
  const SamplingParams& sampling(int n_before) const {
    return n_before < request.min_tokens ? early : request.sampling;
  }
  CacheTokens cache_tokens() const { return {tokens, rows}; }
  // Drafts follow tokens that are known, so who may bring some has no step planned before the last one's draw has
  // been seen.
  bool awaits_draw() const { return n_unseen > 0 && request.propose; }
  bool done_when_seen() const { return n_unseen > 0 && planned_len() >= max_len; }
};

// Whoever is senior is served first and preempted last.
inline bool senior(const Sequence* a, const Sequence* b) {
  return a->rank != b->rank ? a->rank < b->rank : a->id < b->id;
}

}  // namespace ingot
