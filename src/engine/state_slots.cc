#include "engine/state_slots.h"

#include "base/check.h"
#include "engine/scheduler.h"

namespace ingot {

StateSlots::StateSlots(int n_slots, int max_seqs, PrefixCache& cache)
    : cache_(cache), pool_(n_slots, [this](int32_t slot) { cache_.drop_state(slot); }) {
  CHECK(n_slots == 0 || n_slots >= max_seqs);
  if (n_slots > 0) cache_.need_states(n_slots, [this](int32_t slot) { pool_.discard(slot); });
}

void StateSlots::start(Sequence& sequence, int32_t snapshot, bool exclusive) {
  CHECK(sequence.state_out < 0 && room_for_one());
  sequence.state_in = sequence.state_out = snapshot;
  if (snapshot >= 0) pool_.share(snapshot);
  if (snapshot >= 0 && (exclusive || !room_for_one())) return cache_.drop_state(snapshot);
  sequence.state_out = pool_.take();
}

void StateSlots::step(Sequence& sequence, StepItem& item, bool leave) {
  item.state_in = sequence.state_in;
  item.state_out = sequence.state_out;
  sequence.state_in = item.state_out;
  item.leaves_state = leave && room_for_one();
  if (item.leaves_state) sequence.state_out = pool_.take();
}

void StateSlots::keep_input(Sequence& sequence) {
  if (sequence.state_in != sequence.state_out) return;  // the next step already writes another slot
  CHECK(room_for_one());
  sequence.state_out = pool_.take();
}

// Both write other slots than the one that both read.
void StateSlots::fork(Sequence& child, Sequence& parent) {
  CHECK(parent.state_in >= 0 && child.state_out < 0);
  keep_input(parent);
  child.state_in = parent.state_in;
  pool_.share(child.state_in);
  child.state_out = pool_.take();
}

bool StateSlots::keeps_input(const Sequence& sequence, const StepItem& item) {
  return item.state_in != item.state_out && sequence.state_in == item.state_out && sequence.state_out == item.state_out;
}

// The sequence holds both slots again, as before the step: its next step reads and writes the same two slots.
void StateSlots::go_back(Sequence& sequence, const StepItem& item) const {
  CHECK(keeps_input(sequence, item));
  sequence.state_in = item.state_in;
}

void StateSlots::finish_read(const StepItem& item) {
  if (item.state_in >= 0 && item.state_in != item.state_out) release(item.state_in);
}

// The sequence or the next step, which is planned and reads the slot, still holds the slot.
void StateSlots::keep(const StepItem& item, const CacheKey& after) {
  if (item.leaves_state) cache_.keep_state(after, item.state_out);
}

void StateSlots::stop(Sequence& sequence, int32_t tail, bool keep) {
  if (sequence.state_out < 0) return;
  if (keep && sequence.state_in >= 0 && sequence.n_valid == sequence.n_computed)
    tail >= 0 ? cache_.keep_state(tail, sequence.state_in) : cache_.keep_state(sequence.chain, sequence.state_in);
  if (sequence.state_in >= 0 && sequence.state_in != sequence.state_out) release(sequence.state_in);
  release(sequence.state_out);
  sequence.state_in = sequence.state_out = -1;
}

}  // namespace ingot
