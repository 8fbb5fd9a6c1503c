// Scheduler: decides what the next step computes. Pure host code over sequences and block numbers.
//
// A step has a budget of tokens. First every sequence that decodes gets its one token, so that long prompts never stop
// a stream; then prompts continue, a chunk each, and short ones do not wait for long ones; then waiting sequences are
// admitted, in order of rank, while the pool has blocks for all of their tokens and for those that running prompts will
// still claim. An admitted one starts behind what the prefix cache holds of it. When a decode finds no free block, the
// most junior sequence loses its blocks and waits again, to be computed anew as far as the cache has lost it (its
// tokens stay, and draws depend on seed and position only, so its output does not change). The most senior is never the
// one to lose, and each sequence fits the pool alone: hence everyone's turn comes.
//
// Steps may overlap: the next is planned while the last one runs. They run in order, so a block may be given on while a
// step that names it still runs; but those of a finished sequence stay until its last step is done.
//
// A sequence that decodes may bring drafts behind its last token, each with a row of logits: as many as the output, the
// budget, the rows, the blocks and the slots leave, when the others have had theirs. When the step is done, it is cut
// back to the drafts that were drawn. It takes no part in the next step before that.
//
// Of models with recurrent layers a running sequence holds a slot for its state, too, which goes where its blocks go.
// The state is that after its last token, so others can begin only where it left one behind: where the last full block
// of its prompt ends, where its history parts from a cached one, and where it ended. A prompt's chunks are cut there.
//
// Nor can a state be cut back. A step with drafts leaves the slot that it reads as it is and writes another. If all
// drafts were right, the sequence goes on from the new one. Else it goes on from the old one, and its next step brings
// again the token before the drafts and those that were right.
#pragma once
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
  int block_size = 0;        // tokens a KV block
  int n_blocks = 0;
  int n_states = 0;       // slots for states, of those in a step and of checkpoints; 0: the model has none
  int window = 0;         // tokens that a query sees, in every layer; 0: all
  int spare_rows = 0;     // rows of logits in one step besides one for each sequence: for drafts and scored prompts
  int embedding_dim = 0;  // of the vectors that may stand in place of tokens; 0: there are none
  bool prefix_cache = true;
};

// One sequence's part of a step: tokens [begin, begin + n_tokens) of it.
struct StepItem {
  Sequence* sequence = nullptr;
  int begin = 0;
  int n_tokens = 0;
  int n_drafts = 0;      // so many of them, at the end, are drafts
  bool samples = false;  // its last token is in, so the next one is drawn; one more for each draft
  int score_begin =
      0;  // of the prompt's tokens [score_begin, score_begin + n_scored) the probability of the next one is wanted
  int n_scored = 0;
  int n_evicted = 0;                      // of the sequence: it has lost these blocks if that has changed
  int32_t state_in = -1, state_out = -1;  // see Batch
  bool leaves_state = false;              // state_out is a checkpoint

  int n_rows() const { return n_scored + (samples ? 1 + n_drafts : 0); }  // of logits
  // The token that it draws is known already: since it was planned, the sequence has got tokens that a grammar forces.
  bool is_outrun() const { return samples && sequence->len() > begin + n_tokens - n_drafts; }
};

struct Step {
  std::vector<StepItem> items;
  int n_tokens = 0;
  int n_decodes = 0;  // items of one token, and its drafts
  int n_preempted = 0;
  int n_cached = 0;                   // tokens of sequences admitted that the prefix cache held
  int n_spare_rows = 0;               // taken of the limit
  Sequence* no_memory_for = nullptr;  // still waits: there is no memory for the tokens that it may come to have
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  void add(Sequence* sequence);    // gives it its rank
  void pause(Sequence* sequence);  // takes no part until resumed; others may have its blocks
  void resume(Sequence* sequence);
  void remove(Sequence* sequence);   // finished or cancelled: it takes no more part
  void release(Sequence* sequence);  // removed, and no step names it any more: its blocks return
  const Step& plan();                // valid until the plan after the next
  // Its step has run: others may use what it computed. It is cut back to those drafts that the draws have accepted.
  void done(const StepItem& item, int n_accepted = 0);
  void failed(const StepItem& item);  // its step has not

  bool idle() const { return waiting_.empty() && running_.empty(); }  // but for paused ones
  int n_waiting() const { return static_cast<int>(waiting_.size()); }
  int n_running() const { return static_cast<int>(running_.size()); }
  int n_paused() const { return static_cast<int>(paused_.size()); }
  const BlockPool& pool() const { return pool_; }
  const StateSlots& states() const { return states_; }
  int64_t n_blocks_given_up() const { return n_blocks_given_up_; }  // in front of windows, since the start
  int64_t n_cache_walks() const { return n_cache_walks_; }          // lookups in the prefix cache, since the start

 private:
  // Requests of one client that have not ended, and the rank that its last one got.
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
  // Each sequence is in one of these; add() makes room for it in all, so that nothing else allocates.
  std::vector<Sequence*> waiting_;  // most senior first
  std::vector<Sequence*> running_;  // most senior first
  std::vector<Sequence*> paused_;
  std::vector<Sequence*> prompts_;  // of running_, those with more than one token to do: within a plan
  std::unordered_map<std::string, Client> clients_;
  Step steps_[2];            // used in turn
  Step* step_ = &steps_[0];  // the one that is being planned
  CacheMatch match_;
  const Sequence* matched_ = nullptr;  // whose match_ is, within a plan; null: nobody's
  int64_t n_cache_walks_ = 0;
  int64_t n_blocks_given_up_ = 0;
};

}  // namespace ingot
