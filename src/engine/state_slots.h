// StateSlots: records which sequence holds which slot of the state cache, in models with recurrent layers. A running
// sequence holds the slot that its steps write. At a snapshot (Scheduler::next_snapshot), the sequence leaves that
// slot to the prefix cache, and its next step writes another slot. So states are never copied. A snapshot without a
// holder stays until its slot is needed. As with blocks, the slot unused for the longest time is evicted first.
#pragma once
#include <cstdint>

#include "engine/kv_blocks.h"
#include "engine/prefix_cache.h"
#include "engine/sequence.h"

namespace ingot {

struct StepItem;

class StateSlots {
 public:
  StateSlots(int n_slots, int max_seqs, PrefixCache& cache);  // 0 slots: the model has no states

  explicit operator bool() const { return pool_.n_blocks() > 0; }
  // Whether a slot is available. A finished sequence holds its slots until its last step is complete.
  bool room_for_one() const { return pool_.n_free() > 0; }
  int n_free() const { return pool_.n_free(); }
  int n_slots() const { return pool_.n_blocks(); }
  int n_used() const { return pool_.n_used(); }
  int n_cached() const { return pool_.n_cached(); }

  // Gives the sequence a slot. The sequence continues from `snapshot` (-1: starts from an empty state). `exclusive`:
  // the sequence takes over the snapshot's slot, so no other sequence can continue from the snapshot.
  void start(Sequence& sequence, int32_t snapshot, bool exclusive);
  // Called when the sequence's next step is planned. Sets the slots that `item` reads and writes. `leave`: the written
  // state becomes a snapshot if another slot is free for the sequence.
  void step(Sequence& sequence, StepItem& item, bool leave);
  // Called when the sequence's next step verifies drafts. A state cannot be cut back, so that step must not write the
  // slot that it reads.
  void keep_input(Sequence& sequence);
  // Lets the child continue from the parent's state. Needs two free slots.
  void fork(Sequence& child, Sequence& parent);
  // Whether go_back() is possible.
  static bool keeps_input(const Sequence& sequence, const StepItem& item);
  // Called when a step with wrong drafts is complete. The sequence continues from the state before the step.
  void go_back(Sequence& sequence, const StepItem& item) const;
  void finish_read(const StepItem& item);  // the step is complete or has failed: releases the slot that it read
  // The step is complete. If the step left a snapshot, caches its state. `after` is the chain up to the snapshot.
  void keep(const StepItem& item, const CacheKey& after);
  // Releases the sequence's slots. `keep`: caches the state after all tokens, unless a step is in flight or has failed.
  // The state belongs to block `tail`, or to the sequence's chain if `tail` is -1.
  void stop(Sequence& sequence, int32_t tail, bool keep);

 private:
  void release(int32_t slot) {
    pool_.release(slot, cache_.holds_state(slot) ? BlockPool::Keep::kLong : BlockPool::Keep::kNot);
  }

  PrefixCache& cache_;
  BlockPool pool_;
};

}  // namespace ingot
