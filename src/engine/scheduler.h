// Scheduler: decides what the next step computes. Pure host code that works on sequences and block numbers.
//
// A step has a budget of tokens. First, every decoding sequence gets its one token, so long prompts never stall a
// stream. Then each running prompt continues with one chunk, and short prompts do not wait for long prompts. Then
// waiting sequences are admitted in order of rank, as long as the pool has blocks for all of their tokens and for the
// remaining tokens of running prompts. An admitted sequence starts after its cached prefix. When the pool has no block
// for a decode, the most junior sequence is preempted: it loses its blocks and waits again. The sequence keeps its
// tokens and recomputes those whose blocks were evicted from the cache. Sampling depends only on the seed and the
// position, so preemption does not change the output. The most senior sequence never loses its blocks, and every
// sequence fits in the pool by itself. So every sequence finishes.
//
// Steps may overlap: the next step is planned while the last one runs. Steps run in order, so a block may get a new
// holder while an earlier step that uses the block still runs. The blocks of a finished sequence stay until its last
// step is complete.
//
// If a runner has several stages, each stage works on another step. So a step has only a part of the decoding
// sequences, and no sequence whose sampled token is not known yet.
//
// A decoding sequence may append drafts to its last token. Each draft has a row of logits. The number of drafts is
// limited by the remaining output, and by the budget, rows, blocks and slots that the other sequences leave. When the
// step is complete, the sequence is cut back to the accepted drafts. Until then, no further step is planned for the
// sequence.
//
// A model may have several KV caches, each with a pool (KvPool). A sequence has the same number of blocks in each pool.
// In a pool with a window, it releases the blocks that no future step reads. Such a block stays cached for long if it
// is before a place where other sequences may continue: those of snapshots. Otherwise it is the next one to be evicted,
// so that a long prompt does not evict all that others have left.
//
// In models that read a source (SourceInfo), a running sequence also holds the blocks of its source. A step makes the
// keys of one source at most, so that its buffers stay small.
//
// In models with recurrent layers, a running sequence also holds a slot for its state. Slot and blocks are taken and
// released together. The slot holds the state after the sequence's last token, so other sequences can continue only
// from snapshots. A snapshot is made at the end of the last full block of the prompt, at the place where the
// history departs from a cached one, and at the end of the sequence. Prompt chunks are cut at snapshots.
//
// A state cannot be cut back. So a step with drafts writes a different slot from the one that it reads. If all drafts
// are accepted, the sequence continues from the new slot. Otherwise the sequence continues from the old slot, and its
// next step recomputes the token before the drafts and the accepted drafts.
// A search with beams has a sequence for each beam. A beam whose candidates are known keeps its blocks until the next
// beams are chosen. It loses them if the other beams could not run otherwise.
#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/kv_blocks.h"
#include "engine/prefix_cache.h"
#include "engine/saved_prefix.h"
#include "engine/sequence.h"
#include "engine/state_slots.h"

namespace ingot {

struct SchedulerLimits {
  int max_batch_tokens = 0;  // in one step
  int max_seqs = 0;          // in one step
  int chunk = 0;             // tokens of one prompt in one step
  int block_size = 0;        // tokens of a KV block
  std::vector<KvPool> pools;
  int n_states = 0;       // slots for the states in a step and for snapshots; 0: the model has no states
  int spare_rows = 0;     // rows of logits in one step beyond one for each sequence: for drafts and scored prompts
  int n_in_flight = 2;    // steps that may be planned but not complete
  int n_stages = 1;       // of the runner
  int embedding_dim = 0;  // of the vectors that may replace tokens; 0: the model accepts no vectors
  int32_t embedding_token = -1;  // RunnerInfo
  int n_rope_axes = 1;           // RunnerInfo
  SourceInfo source;
  bool prefix_cache = true;
  CacheListener* cache_listener = nullptr;
};

// One sequence's part of a step: its tokens [begin, begin + n_tokens).
struct StepItem {
  Sequence* sequence = nullptr;
  int begin = 0;
  int n_tokens = 0;
  int n_drafts = 0;      // drafts among the n_tokens, at their end
  bool brings_source = false;  // makes the keys of the sequence's source
  bool samples = false;  // the item has the last token: samples the next token, and one after each draft
  int score_begin = 0;   // first of n_scored prompt tokens; the log-probability of each one's next token is wanted
  int n_scored = 0;
  int n_evicted = 0;                      // copy of Sequence::n_evicted; if they differ later, the blocks were lost
  int32_t state_in = -1, state_out = -1;  // see Batch
  bool leaves_state = false;              // state_out becomes a snapshot

  int n_rows() const { return n_scored + (samples ? 1 + n_drafts : 0); }  // rows of logits
  // Whether the token that the item samples is already known, because a grammar forced tokens after the plan.
  bool is_outrun() const { return samples && sequence->len() > begin + n_tokens - n_drafts; }
  // Whether there is no mask for the token that the item samples, so the token is dropped.
  bool is_undrawn() const { return samples && sequence->undrawn_at == begin + n_tokens; }
};

struct Step {
  std::vector<StepItem> items;
  int n_tokens = 0;
  int n_decodes = 0;  // items of one token and its drafts
  int n_preempted = 0;
  int n_cached = 0;                   // tokens found in the prefix cache by sequences admitted in this step
  int n_source_rows = 0;              // of the sources that the step brings
  int n_spare_rows = 0;               // part of SchedulerLimits::spare_rows that this step uses
  Sequence* no_memory_for = nullptr;  // a waiting sequence; memory for its future tokens could not be reserved
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  void add(Sequence* sequence);    // sets the rank of the sequence
  void pause(Sequence* sequence);  // not in any plan until resumed; others may take its blocks
  void resume(Sequence* sequence);
  void remove(Sequence* sequence);   // finished or cancelled: not in any later plan
  void release(Sequence* sequence);  // removed and in no step in flight: frees its blocks
  // Before a plan: takes the blocks that a draft head writes while it guesses n drafts. Returns the number of drafts
  // that fit without taking room that other sequences need.
  int make_room_for_drafts(Sequence& sequence, int n);
  const Step& plan();  // valid until n_in_flight more steps are planned
  // The item's step has run: other sequences may now use the computed blocks. Cuts the sequence back to its accepted
  // drafts. An undrawn item's last token and drafts are computed again.
  void done(const StepItem& item, int n_accepted = 0);
  void failed(const StepItem& item);  // the item's step has failed

  // For saved prefixes (saved_prefix.cc). find_cached returns the cached part of a history, valid until the next call.
  // hold_cached holds the cached blocks of a history. hold takes blocks for the rest too, and throws Error if there are
  // too few; keep then caches the history. drop gives the blocks back, if they are still held. erase_cached erases the
  // history's blocks that no sequence holds, and returns their number of tokens.
  const CacheMatch& find_cached(const CacheKey& root, const CacheTokens& tokens);
  const CacheMatch& hold_cached(const std::shared_ptr<HeldBlocks>& held, const CacheTokens& tokens);
  void hold(const std::shared_ptr<HeldBlocks>& held);
  void keep(HeldBlocks& held);
  void drop(HeldBlocks& held);
  int erase_cached(const CacheKey& root, const CacheTokens& tokens);

  // For beams (scheduler_beams.cc), between steps. add_beam adds a paused sequence with the rank of `leader`. fork lets
  // the paused `child` go on like `parent`: it shares the parent's full blocks, and copy(pool, from, to) copies the
  // open one. If there is no room, the child waits, and its tokens are computed again.
  using CopyBlock = std::function<void(int pool, int32_t from, int32_t to)>;
  void add_beam(Sequence* sequence, const Sequence& leader);
  void fork(Sequence& child, Sequence& parent, const CopyBlock& copy);

  bool idle() const;  // paused and held sequences do not count
  bool waits_for_masks() const;
  std::span<Sequence* const> running() const { return running_; }
  int n_waiting() const { return static_cast<int>(waiting_.size()); }
  int n_running() const { return static_cast<int>(running_.size()); }
  int n_paused() const { return static_cast<int>(paused_.size()); }
  const BlockPool& pool(int i = 0) const { return pools_[static_cast<size_t>(i)]; }
  const StateSlots& states() const { return states_; }
  int64_t n_blocks_released() const { return n_blocks_released_; }  // blocks before windows, since the start
  int64_t n_cache_walks() const { return n_cache_walks_; }          // lookups in the prefix cache, since the start

 private:
  // The number of one client's requests that have not ended, and the rank of the client's last request.
  struct Client {
    int n_requests = 0;
    int64_t last_rank = 0;
  };

  int64_t rank_of(const Sequence& sequence);
  void reserve_place();
  void give_up_old_blocks(Sequence& sequence);
  bool is_before_snapshot(const Sequence& sequence, int block, int window) const;
  void take_back_holds();
  void make_room();
  Sequence* next_waiting() const;
  int most_decodes() const;
  void plan_decodes();
  void plan_prefills();
  void admit();
  bool fits(const Sequence& sequence);
  void match_cache(const Sequence& sequence);
  bool match_is_of(const Sequence& sequence) const;
  void forget_match(int pool, int32_t block);
  bool reserve(Sequence& sequence) const;
  bool has_room_for_source(const Sequence& sequence) const;
  bool take_source(Sequence& sequence);
  void take_cached(Sequence& sequence);
  int64_t room_for_drafts(const Sequence& sequence) const;
  int drafts_for(const Sequence& sequence, int n_later) const;
  void take(Sequence& sequence, int n_tokens, int n_drafts = 0);
  void cut_back(Sequence& sequence, int n_tokens);
  bool grow(Sequence& sequence, int n_tokens);
  void preempt(Sequence& sequence);
  bool preempt_held_beam();
  bool can_fork(const Sequence& parent) const;
  void share_blocks(Sequence& child, Sequence& parent, const CopyBlock& copy);
  void compute_again(const StepItem& item);
  void give_back(Sequence& sequence, bool keep_state = true);
  void index_blocks(Sequence& sequence);
  int32_t index_tail(Sequence& sequence);
  std::span<const int32_t> blocks_of(const Sequence& sequence, int i);
  int budget() const { return limits_.max_batch_tokens - step_->n_tokens; }
  int blocks_for(int n_tokens) const { return (n_tokens + limits_.block_size - 1) / limits_.block_size; }
  int n_pools() const { return static_cast<int>(limits_.pools.size()); }
  bool has_window() const { return std::ranges::any_of(limits_.pools, [](const KvPool& p) { return p.window > 0; }); }
  int blocks_promised(const Sequence& sequence, int pool) const;
  int most_blocks_held(const Sequence& sequence, int pool) const;
  void release_block(int pool, int32_t block, BlockPool::Keep keep = BlockPool::Keep::kLong);
  int prefill_tokens(const Sequence& sequence, int most) const;
  int whole_rows_next(const Sequence& sequence) const;
  int next_snapshot(const Sequence& sequence) const;

  const SchedulerLimits limits_;
  PrefixCache cache_;
  std::vector<BlockPool> pools_;
  BlockPool sources_;  // without blocks: the model reads no sources
  StateSlots states_;
  // Each sequence is in one of these three vectors. add() reserves space for the sequence in all three, so later calls
  // do not allocate.
  std::vector<Sequence*> waiting_;  // most senior first
  std::vector<Sequence*> running_;  // most senior first
  std::vector<Sequence*> paused_;
  std::vector<Sequence*> prompts_;  // within a plan: the sequences of running_ with more than one token to compute
  std::unordered_map<std::string, Client> clients_;
  std::vector<Step> steps_;  // [n_in_flight], used in turn
  size_t next_step_ = 0;
  Step* step_ = nullptr;  // the step that is being planned
  CacheMatch match_;
  const Sequence* matched_ = nullptr;  // within a plan: the sequence that match_ belongs to; null: none
  int64_t n_cache_walks_ = 0;
  int64_t n_blocks_released_ = 0;
  std::vector<int32_t> blocks_;  // one of each pool, for the prefix cache
  std::vector<std::shared_ptr<HeldBlocks>> holds_;
};

}  // namespace ingot
