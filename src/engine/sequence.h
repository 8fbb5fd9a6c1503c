// Sequence: a request while the engine works on it. The engine owns the sequence; the scheduler moves it between
// waiting, running and paused.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/answer_constraint.h"
#include "engine/prefix_cache.h"
#include "engine/request.h"
#include "engine/speculate/acceptance.h"

namespace ingot {

// What a constraint allows after an answer's last token.
struct NextTokens {
  bool takes_drawn = false;               // the token sampled after the last draft comes first
  std::vector<int32_t> forced;            // tokens that need no sampling, accepted by the constraint
  bool is_over = false;                   // the answer ends after these tokens
  std::shared_ptr<const TokenMask> mask;  // of the token after these; null: any token
  std::string error;                      // of the constraint; empty: none
};

inline constexpr int kShortestTrialWait = 8;  // tokens

// The blocks of a sequence in one pool.
struct SequenceBlocks {
  std::vector<int32_t> blocks;  // for each block_size tokens; -1: released before the window of the pool's layers
  int n_released = 0;           // number of those released blocks
  int size() const { return static_cast<int>(blocks.size()); }
  int n_held() const { return size() - n_released; }
};

struct BeamGroup;

struct Sequence {
  RequestId id = 0;
  Request request;
  int64_t rank = 0;               // place in the queue (Scheduler::add): a smaller rank is served first
  std::vector<int32_t> tokens;    // prompt and known output, then drafts
  int n_drafts = 0;               // tokens at the end: a step verifies them, or they are accepted but not delivered
  std::vector<RowDigest> rows;    // of the prompt, up to the end of its last embedding; empty: tokens only
  int n_prompt = 0;
  int n_whole_rows = 0;           // of the largest image whose rows are in one step (PromptEmbedding::sees_all)
  int max_len = 0;  // the sequence ends at this many tokens

  // Tokens whose keys and values are written by the steps planned so far. The rest is still to be computed: many tokens
  // for a new or preempted sequence, one token for a sequence that decodes. Nothing else distinguishes prompts from
  // decodes.
  int n_computed = 0;
  int n_valid = 0;                    // part of n_computed: written by completed steps
  std::vector<SequenceBlocks> pools;  // one for each of RunnerInfo::pools, with the same number of blocks
  std::vector<int32_t> source_blocks;  // in the cache of sources, while the sequence runs
  bool brings_source = false;          // the next step makes the keys of the source
  // In models with states: the slots that the next step reads (-1: none yet) and writes.
  int32_t state_in = -1, state_out = -1;
  int branch = 0;         // where the history departs from a cached one: a place for a snapshot
  int last_boundary = 0;  // end of the last full block of the prompt: a place for a snapshot, too
  int n_indexed = 0;      // leading blocks that have been passed to the prefix cache
  CacheKey root, chain;   // of the parent of the first block, and of the last indexed block

  // For overlapping steps: the next step is planned before the tokens that the last step samples are known.
  int n_unseen = 0;       // tokens sampled but not known to the host: 0 or 1
  int unseen_row = 0;     // the row of that token in the last step's results
  int n_steps = 0;        // steps planned but not complete
  bool finished = false;  // the consumer has been notified, but steps in flight still use the blocks
  bool has_nan = false;   // no other sequence may use the computed blocks and states

  int n_scored = 0;  // if log-probabilities of the prompt are wanted: tokens scored by the steps planned so far
  std::vector<std::shared_ptr<const TokenMask>> masks;  // for the rows to sample in the step in flight; null: any token

  // The constraint on the answer (engine_constraints.cc). While waits_for_mask, a worker uses the constraint, and no
  // other thread does.
  std::shared_ptr<AnswerConstraint> constraint;
  bool waits_for_mask = false;     // in no plan until a worker has made the mask of the next token
  std::optional<Sampled> drawn;    // sampled after the last draft; delivered unless the grammar forces text there
  std::optional<NextTokens> next;  // the worker's result, until the step in flight is complete
  std::optional<std::shared_ptr<const TokenMask>> made_mask;  // of the next token, made by a worker
  int undrawn_at = -1;  // the item in flight that ends at this token has no mask, so its sampled token is dropped

  // A search with beams (beams.h). While a beam has candidates, it waits for those of the other beams.
  std::shared_ptr<BeamGroup> beams;
  std::optional<std::vector<TokenLogprob>> candidates;

  float mirostat_mu = 0;  // Mirostat's state
  SamplingParams early;  // the request's sampling without stop tokens, for the first min_tokens

  // Drafts (speculate/proposer.h).
  Proposal guess;                 // the proposer's guess of the tokens after the first guess_at tokens
  int guess_at = 0;               // 0: no guess
  int n_unguessed = 0;            // tokens since the last guess; for costly proposers
  int next_trial = kShortestTrialWait;  // the proposer is tried again when n_unguessed reaches this number
  int trial_wait = kShortestTrialWait;  // next_trial after a failed trial
  bool is_trial = false;                // the next step's drafts are a trial
  bool trial_can_pay = false;           // according to the step times, if all drafts are right
  std::vector<int32_t> proposed;  // drafts for the next step
  int64_t head_step = -1;         // for a draft head: the last step with this sequence,
  int head_row = 0;               // and its row of the token before the last one
  Acceptance acceptance{32};      // of this sequence's drafts
  DraftYield draft_yield{32};     // of this sequence's costly guesses
  // Drafts follow known tokens. So a sequence that will have drafts gets no step until its last sampled token is known.
  bool waits_for_draw = false;
  int n_drafted = 0, n_accepted = 0;  // drafts that steps verified, and accepted drafts
  int n_sampling_steps = 0;           // steps that gave tokens of the output
  int n_gain_steps = 0;               // part of n_sampling_steps: those whose times are known
  double step_seconds = 0;            // measured time of these steps (DraftLengths)
  double plain_seconds = 0;           // time that steps without drafts would have taken for the same tokens

  int n_cached = 0;  // prompt tokens found in the prefix cache, so not computed
  int n_preempted = 0;
  int n_evicted = 0;  // times that the sequence lost its blocks, by preemption or a pause
  Clock::time_point submitted, first_step, first_token, last_token;

  int len() const { return static_cast<int>(tokens.size()) - n_drafts; }
  int planned_len() const { return len() + n_unseen; }
  int n_output() const { return len() - n_prompt; }
  int n_todo() const { return planned_len() - n_computed; }
  bool scores() const { return request.prompt_logprobs >= 0 && n_scored < n_prompt - 1; }
  // The parameters to sample the token that follows n_before output tokens.
  const SamplingParams& sampling(int n_before) const {
    return n_before < request.min_tokens ? early : request.sampling;
  }
  CacheTokens cache_tokens() const { return {tokens, rows}; }
  bool is_held() const { return waits_for_mask || candidates; }  // in no plan
  // Whether a plan may give the sequence its next token. A sequence with a slow constraint gets no step before its last
  // sampled token is known, because the mask of the token after that one would come too late. Neither does a beam.
  bool is_ready() const {
    const bool follows_draws = !beams && (!constraint || !constraint->is_slow());
    return !is_held() && !waits_for_draw && (n_unseen == 0 || follows_draws);
  }
  bool done_when_seen() const { return n_unseen > 0 && planned_len() >= max_len; }
};

// A senior sequence is served earlier and preempted later.
inline bool senior(const Sequence* a, const Sequence* b) {
  return a->rank != b->rank ? a->rank < b->rank : a->id < b->id;
}

}  // namespace ingot
