// StateSlots: who holds which slot of the state cache, in models with recurrent layers. A sequence that runs holds the
// one that its steps write. Where somebody may want to go on (Scheduler::next_checkpoint) it leaves that slot behind
// and writes its next step to another: so a checkpoint is a slot that the prefix cache knows, and nothing is ever
// copied. What nobody holds stays until its place is needed, the longest unused first, as blocks do.
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
  bool room_for_one() const {
    return pool_.n_free() > 0;
  }  // finished sequences hold theirs until their last step is done
  int n_free() const { return pool_.n_free(); }
  int n_slots() const { return pool_.n_blocks(); }
  int n_used() const { return pool_.n_used(); }
  int n_kept() const { return pool_.n_kept(); }

  // A sequence gets a slot. It goes on from a checkpoint, or begins (-1); `alone`: nobody else shall go on from there.
  void start(Sequence& sequence, int32_t checkpoint, bool alone);
  // Its next step is planned: which slots it reads and writes. With `leave`, what it writes stays behind, if there is
  // room.
  void step(Sequence& sequence, StepItem& item, bool leave);
  // Its next step verifies drafts. A state cannot be cut back, so that step is to leave the slot that it reads as it
  // is.
  void keep_input(Sequence& sequence);
  // That step is done and some drafts were wrong. The sequence goes on from the state before the step.
  void go_back(Sequence& sequence, const StepItem& item) const;
  void landed(const StepItem& item);  // the step is done or has failed: what it read may go
  // It is done, and `after` is the chain up to where it left a state, if it did.
  void keep(const StepItem& item, const CacheKey& after);
  // Its slots return. It leaves a state of all its tokens, unless a step is under way or has failed: after `tail`, or
  // its chain.
  void stop(Sequence& sequence, int32_t tail, bool keep);

 private:
  void release(int32_t slot) { pool_.release(slot, cache_.holds_state(slot)); }

  PrefixCache& cache_;
  BlockPool pool_;
};

}  // namespace ingot
