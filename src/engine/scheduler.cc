#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace ingot {
namespace {

template <class Container>
void insert_in_order(Container& sequences, Sequence* sequence) {
  sequences.insert(std::upper_bound(sequences.begin(), sequences.end(), sequence, senior), sequence);
}

template <class Container>
bool erase_one(Container& sequences, Sequence* sequence) {
  const auto found = std::find(sequences.begin(), sequences.end(), sequence);
  if (found == sequences.end()) return false;
  sequences.erase(found);
  return true;
}

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits) : limits_(limits), pool_(limits.n_blocks) {
  CHECK(limits.max_batch_tokens > 0 && limits.max_seqs > 0 && limits.chunk > 0);
  CHECK(limits.block_size > 0 && limits.n_blocks > 0);
  running_.reserve(limits.max_seqs);
  step_.items.reserve(limits.max_seqs);
}

void Scheduler::add(Sequence* sequence) { insert_in_order(waiting_, sequence); }

void Scheduler::remove(Sequence* sequence) {
  release_blocks(*sequence);
  CHECK(erase_one(running_, sequence) || erase_one(waiting_, sequence));
}

const Step& Scheduler::plan() {
  step_.items.clear();
  step_.n_tokens = step_.n_decodes = step_.n_preempted = 0;
  plan_decodes();
  plan_prefills();
  admit();
  CHECK(!step_.items.empty() || idle());
  return step_;
}

void Scheduler::plan_decodes() {
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.n_todo() != 1) continue;
    // Those planned so far are older, so the youngest is never one of them; it may be this one.
    while (i < running_.size() && !grow(sequence, sequence.n_computed + 1)) preempt_youngest();
    if (i < running_.size()) take(sequence, 1);
  }
}

void Scheduler::plan_prefills() {
  for (size_t i = 0; i < running_.size() && budget() > 0; ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.n_todo() <= 1) continue;
    // Without a block it waits for others to end. When nobody has anything to do, it is the oldest, and takes.
    while (prefill_tokens(sequence) == 0 && step_.items.empty()) {
      CHECK(running_.back() != &sequence);
      preempt_youngest();
    }
    const int n_tokens = prefill_tokens(sequence);
    if (n_tokens > 0) take(sequence, n_tokens);
  }
}

void Scheduler::admit() {
  // While there is budget, every running sequence has its part of this step (one that lacks blocks also bars
  // admission), so there are never more of them than the budget has tokens, and a prompt among decodes still gets one.
  while (!waiting_.empty() && n_running() < limits_.max_seqs && budget() > 0) {
    Sequence* sequence = waiting_.front();
    // One more block for each running sequence, or the next few tokens would preempt what has just been admitted.
    const int needed = blocks_for(sequence->len()) + blocks_promised() + n_running();
    if (n_running() > 0 && pool_.n_free() < needed) break;
    waiting_.pop_front();
    insert_in_order(running_, sequence);
    take(*sequence, prefill_tokens(*sequence));
  }
}

// Tokens of its prompt for this step: what the chunk, the budget and the blocks allow.
int Scheduler::prefill_tokens(const Sequence& sequence) const {
  const int64_t n_blocks = static_cast<int64_t>(sequence.blocks.size()) + pool_.n_free();
  const int64_t room = n_blocks * limits_.block_size - sequence.n_computed;
  const int wanted = std::min({sequence.n_todo(), limits_.chunk, budget()});
  return static_cast<int>(std::min<int64_t>(wanted, room));
}

// Blocks that running prompts have yet to claim.
int Scheduler::blocks_promised() const {
  int n = 0;
  for (const Sequence* sequence : running_) {
    n += std::max(0, blocks_for(sequence->len()) - static_cast<int>(sequence->blocks.size()));
  }
  return n;
}

void Scheduler::take(Sequence& sequence, int n_tokens) {
  CHECK_GT(n_tokens, 0);
  CHECK_LE(n_tokens, budget());
  CHECK(grow(sequence, sequence.n_computed + n_tokens));
  step_.items.push_back({&sequence, sequence.n_computed, n_tokens, n_tokens == sequence.n_todo()});
  step_.n_tokens += n_tokens;
  step_.n_decodes += n_tokens == 1;
  sequence.n_computed += n_tokens;
}

// Makes room for n_tokens in all. False when the pool is out of blocks.
bool Scheduler::grow(Sequence& sequence, int n_tokens) {
  while (static_cast<int>(sequence.blocks.size()) < blocks_for(n_tokens)) {
    const int32_t block = pool_.take();
    if (block < 0) return false;
    sequence.blocks.push_back(block);
  }
  return true;
}

void Scheduler::preempt_youngest() {
  CHECK_GT(n_running(), 1);
  Sequence* youngest = running_.back();
  running_.pop_back();
  release_blocks(*youngest);
  youngest->n_computed = 0;
  ++youngest->n_preempted;
  ++step_.n_preempted;
  insert_in_order(waiting_, youngest);
}

void Scheduler::release_blocks(Sequence& sequence) {
  for (auto block = sequence.blocks.rbegin(); block != sequence.blocks.rend(); ++block) pool_.release(*block);
  sequence.blocks.clear();
}

}  // namespace ingot
