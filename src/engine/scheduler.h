// Scheduler: decides what the next step computes. Pure host code that works on sequences and block numbers.
//
// A step has a budget of tokens. First, every sequence that decodes gets its one token, so that long prompts never stop
// a stream. Then prompts continue, one chunk each, and short prompts do not wait for long prompts. Then waiting
// sequences are admitted in order of rank, while the pool has blocks for all of their tokens and for the tokens that
// running prompts will still need. An admitted sequence starts after the tokens that the prefix cache holds. When the
// pool has no block for a decode, the most junior sequence is preempted: it loses its blocks and waits again. The
// sequence keeps its tokens, and computes again the tokens whose blocks were evicted from the cache. Sampling depends
// on seed and position only, so the output does not change. The most senior sequence never loses its blocks, and every
// sequence fits in the pool by itself. So every sequence finishes.
//
// Steps may overlap: the next step is planned while the last one runs. Steps run in order, so a block may get a new
// holder while an earlier step that names the block still runs. The blocks of a finished sequence stay until its last
// step is complete.
//
// A sequence that decodes may bring drafts after its last token, each with a row of logits. The number of drafts is
// limited by the output, the budget, the rows, the blocks and the slots that the other sequences leave. When the step
// is complete, the sequence is cut back to the accepted drafts. Until then, the sequence takes no part in the next
// step.
//
// In models with recurrent layers, a running sequence also holds a slot for its state; slot and blocks are taken and
// released together. The slot holds the state after the sequence's last token, so other sequences can continue only
// from checkpoints. Checkpoints are at the end of the last full block of the prompt, where the history departs from a
// cached one, and at the end of the sequence. Prompt chunks are cut at checkpoints.
//
// A state cannot be cut back. A step with drafts does not change the slot that it reads, and writes another slot. If
// all drafts are accepted, the sequence continues from the new slot. Else the sequence continues from the old slot, and
// its next step computes again the token before the drafts and the accepted drafts.
#pragma once
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/kv_blocks.h"
#include "engine/prefix_cache.h"
#include "engine/sequence.h"
#include "engine/state_slots.h"

namespace ingot {

struct SchedulerLimits {
  int max_batch_tokens = 0;  // in one step
  int max_seqs = 0;          // in one step
  int chunk = 0;             // tokens of one prompt in one step
  int block_size = 0;        // tokens of a KV block
  int n_blocks = 0;
  int n_states = 0;       // slots for the states in a step and for checkpoints; 0: the model has none
  int window = 0;         // tokens that a query attends to, in every layer; 0: all
  int spare_rows = 0;     // rows of logits in one step beyond one for each sequence: for drafts and scored prompts
  int embedding_dim = 0;  // of the vectors that may replace tokens; 0: the model takes none
  bool prefix_cache = true;
  CacheListener* cache_listener = nullptr;
};

// One sequence's part of a step: tokens [begin, begin + n_tokens) of it.
struct StepItem {
  Sequence* sequence = nullptr;
  int begin = 0;
  int n_tokens = 0;
  int n_drafts = 0;      // drafts among the n_tokens, at their end
  bool samples = false;  // the item has the last token, so the next one is sampled; so is one after each draft
  int score_begin = 0;   // first prompt token whose next token's log-probability is wanted (n_scored tokens)
  int n_scored = 0;
  int n_evicted = 0;                      // copy of Sequence::n_evicted; if they differ later, the blocks were lost
  int32_t state_in = -1, state_out = -1;  // see Batch
  bool leaves_state = false;              // state_out becomes a checkpoint

  int n_rows() const { return n_scored + (samples ? 1 + n_drafts : 0); }  // rows of logits
  // Whether the token that the item samples is already known: after the plan, a grammar forced tokens of the sequence.
  bool is_outrun() const { return samples && sequence->len() > begin + n_tokens - n_drafts; }
};

struct Step {
  std::vector<StepItem> items;
  int n_tokens = 0;
  int n_decodes = 0;  // items of one token and its drafts
  int n_preempted = 0;
  int n_cached = 0;                   // tokens found in the prefix cache by sequences admitted in this step
  int n_spare_rows = 0;               // part of SchedulerLimits::spare_rows that this step uses
  Sequence* no_memory_for = nullptr;  // a waiting sequence for whose future tokens memory could not be reserved
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  void add(Sequence* sequence);    // sets the rank of the sequence
  void pause(Sequence* sequence);  // takes no part until resumed; others may take its blocks
  void resume(Sequence* sequence);
  void remove(Sequence* sequence);   // finished or cancelled: takes no further part
  void release(Sequence* sequence);  // removed and in no step in flight: frees its blocks
  // Before a plan: takes the blocks into which a draft head writes while it guesses n drafts. Returns the number of
  // drafts for which there is room beside the needs of others.
  int make_room_for_drafts(Sequence& sequence, int n);
  const Step& plan();                // valid until the plan after the next
  // The item's step has run, so others may use the computed blocks. The sequence is cut back to its accepted drafts.
  void done(const StepItem& item, int n_accepted = 0);
  void failed(const StepItem& item);  // the item's step has failed

  // For saved prefixes (saved_prefix.cc). find_cached: the cached part of a history, valid until the next call.
  // add_cached: caches a history. write fills block `i` of the history, unless the cache has that block or i is less
  // than n_missing. Throws Error if there are too few blocks. erase_cached: erases the history's blocks that no
  // sequence holds; returns how many tokens they had.
  const CacheMatch& find_cached(const CacheKey& root, const CacheTokens& tokens);
  void add_cached(const CacheKey& root, const CacheTokens& tokens, int n_missing,
                  const std::function<void(int i, int32_t block)>& write);
  int erase_cached(const CacheKey& root, const CacheTokens& tokens);

  bool idle() const { return waiting_.empty() && running_.empty(); }  // paused sequences do not count
  std::span<Sequence* const> running() const { return running_; }
  int n_waiting() const { return static_cast<int>(waiting_.size()); }
  int n_running() const { return static_cast<int>(running_.size()); }
  int n_paused() const { return static_cast<int>(paused_.size()); }
  const BlockPool& pool() const { return pool_; }
  const StateSlots& states() const { return states_; }
  int64_t n_blocks_released() const { return n_blocks_released_; }  // before windows, since the start
  int64_t n_cache_walks() const { return n_cache_walks_; }          // lookups in the prefix cache, since the start

 private:
  // Requests of one client that have not ended, and the rank of the client's last request.
  struct Client {
    int n_requests = 0;
    int64_t last_rank = 0;
  };

  int64_t rank_of(const Sequence& sequence);
  void give_up_old_blocks(Sequence& sequence);
  void make_room();
  void plan_decodes();
  void plan_prefills();
  void admit();
  bool fits(const Sequence& sequence);
  void match_cache(const Sequence& sequence);
  bool match_is_of(const Sequence& sequence) const;
  bool reserve(Sequence& sequence) const;
  void take_cached(Sequence& sequence);
  int64_t room_for_drafts(const Sequence& sequence) const;
  int drafts_for(const Sequence& sequence, int n_later) const;
  void take(Sequence& sequence, int n_tokens, int n_drafts = 0);
  void cut_back(Sequence& sequence, int n_tokens);
  bool grow(Sequence& sequence, int n_tokens);
  void preempt(Sequence& sequence);
  void give_back(Sequence& sequence);
  void index_blocks(Sequence& sequence);
  int32_t index_tail(Sequence& sequence);
  int budget() const { return limits_.max_batch_tokens - step_->n_tokens; }
  int blocks_for(int n_tokens) const { return (n_tokens + limits_.block_size - 1) / limits_.block_size; }
  int blocks_promised(const Sequence& sequence) const;
  int most_blocks_held() const;
  int prefill_tokens(const Sequence& sequence) const;
  int next_checkpoint(const Sequence& sequence) const;

  const SchedulerLimits limits_;
  PrefixCache cache_;
  BlockPool pool_;
  StateSlots states_;
  // Each sequence is in one of these three vectors. add() reserves space for it in all three, so that no later call
  // allocates.
  std::vector<Sequence*> waiting_;  // most senior first
  std::vector<Sequence*> running_;  // most senior first
  std::vector<Sequence*> paused_;
  std::vector<Sequence*> prompts_;  // within a plan: the sequences of running_ with more than one token to compute
  std::unordered_map<std::string, Client> clients_;
  Step steps_[2];            // used in turn
  Step* step_ = &steps_[0];  // the step that is being planned
  CacheMatch match_;
  const Sequence* matched_ = nullptr;  // within a plan: the sequence that match_ is for; null: none
  int64_t n_cache_walks_ = 0;
  int64_t n_blocks_released_ = 0;
};

}  // namespace ingot
