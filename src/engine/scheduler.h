// Scheduler: decides what the next step computes. Pure host code over sequences and block numbers.
//
// A step has a budget of tokens. First every sequence that decodes gets its one token, so that long prompts never stop
// a stream; then prompts continue, a chunk each; then waiting sequences are admitted, in order, while the pool has
// blocks for all of their tokens and for those that running prompts will still claim. When a decode finds no free
// block, the youngest sequence loses all of its blocks and waits again, to be computed anew (its tokens stay, and draws
// depend on seed and position only, so its output does not change). The oldest is never the one to lose, and each
// sequence fits the pool alone: hence every step computes something and everyone's turn comes.
#pragma once
#include <deque>
#include <vector>

#include "engine/kv_blocks.h"
#include "engine/sequence.h"

namespace ingot {

struct SchedulerLimits {
  int max_batch_tokens = 0;  // in one step
  int max_seqs = 0;          // in one step
  int chunk = 0;             // tokens of one prompt in one step
  int block_size = 0;        // tokens a KV block
  int n_blocks = 0;
};

// One sequence's part of a step: tokens [begin, begin + n_tokens) of it.
struct StepItem {
  Sequence* sequence = nullptr;
  int begin = 0;
  int n_tokens = 0;
  bool samples = false;  // its last token is in, so the next one is drawn
};

struct Step {
  std::vector<StepItem> items;
  int n_tokens = 0;
  int n_decodes = 0;         // items of one token
  int n_preempted = 0;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  void add(Sequence* sequence);
  void remove(Sequence* sequence);  // finished or cancelled: its blocks return to the pool
  const Step& plan();               // valid until the next plan; empty only when idle
  bool idle() const { return waiting_.empty() && running_.empty(); }

  int n_waiting() const { return static_cast<int>(waiting_.size()); }
  int n_running() const { return static_cast<int>(running_.size()); }
  const BlockPool& pool() const { return pool_; }

 private:
  void plan_decodes();
  void plan_prefills();
  void admit();
  void take(Sequence& sequence, int n_tokens);
  bool grow(Sequence& sequence, int n_tokens);
  void preempt_youngest();
  void release_blocks(Sequence& sequence);
  int budget() const { return limits_.max_batch_tokens - step_.n_tokens; }
  int blocks_for(int n_tokens) const { return (n_tokens + limits_.block_size - 1) / limits_.block_size; }
  int blocks_promised() const;
  int prefill_tokens(const Sequence& sequence) const;

  const SchedulerLimits limits_;
  BlockPool pool_;
  std::deque<Sequence*> waiting_;   // oldest first
  std::vector<Sequence*> running_;  // oldest first
  Step step_;
};

}  // namespace ingot
