// The scheduler's part of searches with beams: a beam that goes on twice becomes two sequences.
#include <algorithm>

#include "base/check.h"
#include "engine/scheduler.h"

namespace ingot {
namespace {

void put_in_order(std::vector<Sequence*>& sequences, Sequence* sequence) {
  sequences.insert(std::ranges::upper_bound(sequences, sequence, senior), sequence);
}

}  // namespace

// May throw if memory runs out, and then changes nothing.
void Scheduler::add_beam(Sequence* sequence, const Sequence& leader) {
  sequence->pools.resize(limits_.pools.size());
  sequence->rank = leader.rank;
  sequence->root = sequence->chain = leader.root;
  reserve_place();
  paused_.push_back(sequence);
}

// Whether the parent has all its blocks, and there is room for one sequence more.
bool Scheduler::can_fork(const Sequence& parent) const {
  const bool is_whole = parent.n_valid == parent.len() && parent.n_computed == parent.n_valid;
  if (!is_whole || n_running() >= std::min(limits_.max_seqs, limits_.max_batch_tokens)) return false;
  if (states_ && (parent.state_in < 0 || states_.n_free() < 2)) return false;
  return std::ranges::all_of(pools_, [](const BlockPool& pool) { return pool.n_free() > 0; }) &&
         std::ranges::find(running_, &parent) != running_.end();
}

void Scheduler::fork(Sequence& child, Sequence& parent, const CopyBlock& copy) {
  const auto place = std::ranges::find(paused_, &child);
  CHECK(place != paused_.end() && child.n_computed == 0);
  const bool is_direct = can_fork(parent) && reserve(child);
  if (is_direct) share_blocks(child, parent, copy);
  paused_.erase(place);
  put_in_order(is_direct ? running_ : waiting_, &child);
}

void Scheduler::share_blocks(Sequence& child, Sequence& parent, const CopyBlock& copy) {
  const int n_full = parent.n_valid / limits_.block_size;
  for (size_t i = 0; i < pools_.size(); ++i) {
    const SequenceBlocks& from = parent.pools[i];
    SequenceBlocks& own = child.pools[i];
    CHECK_EQ(from.size(), blocks_for(parent.n_valid));
    own.blocks.assign(static_cast<size_t>(from.n_released), -1);
    own.n_released = from.n_released;
    for (int b = from.n_released; b < from.size(); ++b) {
      const int32_t block = from.blocks[static_cast<size_t>(b)];
      if (b < n_full) pools_[i].share(block);
      own.blocks.push_back(b < n_full ? block : pools_[i].take());
      if (b >= n_full) copy(static_cast<int>(i), block, own.blocks.back());
    }
  }
  child.source_blocks = parent.source_blocks;
  for (const int32_t block : child.source_blocks) sources_.share(block);
  if (states_) states_.fork(child, parent);
  child.n_computed = child.n_valid = parent.n_valid;
  child.n_indexed = parent.n_indexed, child.chain = parent.chain;
  child.branch = parent.branch, child.last_boundary = parent.last_boundary;
}

// If sequences could run but have no room, the most junior beam whose candidates are known loses its blocks. Returns
// whether there was one.
bool Scheduler::preempt_held_beam() {
  const auto waits = [](const Sequence* s) { return !s->is_held() && s->n_unseen == 0; };
  const bool any = std::ranges::any_of(waiting_, waits) || std::ranges::any_of(running_, waits);
  const bool is_in_flight = std::ranges::any_of(running_, [](const Sequence* s) { return s->n_steps > 0; });
  const auto held = std::find_if(running_.rbegin(), running_.rend(), [](const Sequence* s) { return !!s->candidates; });
  if (!any || is_in_flight || held == running_.rend()) return false;
  preempt(**held);
  return true;
}

}  // namespace ingot
