// SchemaMachine: how values begin and end.
#include <algorithm>

#include "text/grammar/machine/layout.h"
#include "text/grammar/machine/schema_machine.h"

namespace ingot {

GrammarState SchemaMachine::begin_value(uint32_t slot, uint8_t byte, uint32_t text) {
  const uint32_t value = frames_[slot][kSlotPlan];
  const auto scalar = [&](JsonType type) -> GrammarState {
    const uint32_t place = without_seen(first_word(value, type), frames_.copy(frames_[slot][kSlotParent]));
    if (place == kDead || type == JsonType::kString) return {place, slot, text};
    const uint32_t next = word_row(place)[byte];
    return {next >= kFirstWord ? next : uint32_t{kPlaceDead}, slot, text};
  };
  switch (byte) {
    case '"': return scalar(JsonType::kString);
    case 'n': return scalar(JsonType::kNull);
    case 't':
    case 'f': return scalar(JsonType::kBool);
    case '{': {
      if (!can_be(value, JsonType::kObject)) return {};
      return {kFirstName, frames_.intern(first_frame(value, slot, JsonType::kObject, text)), text};
    }
    case '[': {
      if (!can_be(value, JsonType::kArray)) return {};
      return {kFirstItem, frames_.intern(first_frame(value, slot, JsonType::kArray, text)), text};
    }
    default: return byte == '-' || (byte >= '0' && byte <= '9') ? scalar(JsonType::kNumber) : GrammarState{};
  }
}

GrammarState SchemaMachine::close_object(uint32_t frame, uint32_t text) {
  const Words words = frames_.copy(frame);
  const ObjectPlan& plan = *objects_[words[kObjectPlan]];
  const auto truth = [&](uint32_t r) { return object_truth(plan, words, r, true); };
  if (formulas_.evaluate(plan.need, truth) != Truth::kTrue) return {};
  Outcome met;
  for (Formula goal : plan.goals) met.push_back(formulas_.evaluate(goal, truth));
  return end_value(words[kObjectSlot], met, words[kObjectText] == 0 ? 0 : text);
}

GrammarState SchemaMachine::close_array(uint32_t frame, uint32_t text) {
  const Words words = frames_.copy(frame);
  const ArrayPlan& plan = *arrays_[words[kArrayPlan]];
  const auto truth = [&](uint32_t r) { return array_truth(plan, words, r, true); };
  if (formulas_.evaluate(plan.need, truth) != Truth::kTrue) return {};
  Outcome met;
  for (Formula goal : plan.goals) met.push_back(formulas_.evaluate(goal, truth));
  return end_value(words[kArraySlot], met, words[kArrayText] == 0 ? 0 : text);
}

// met: for each goal of the slot's plan, whether the value meets the goal.
GrammarState SchemaMachine::end_value(uint32_t slot_id, const Outcome& met, uint32_t text) {
  const Words slot = frames_.copy(slot_id);
  if (slot[kSlotParent] == 0) return {kDone, 0, 0};
  Words frame = frames_.copy(slot[kSlotParent]);
  const auto link = std::span(slot).subspan(kSlotLink);
  if (frame[0] == kObject) {
    note_member(frame, link, met);
    if (frame[kObjectText] == 0) text = 0;
  } else {
    const ArrayPlan& plan = *arrays_[frame[kArrayPlan]];
    const size_t n_rules = plan.rules.size();
    note_item(frame, link.first(n_rules), link.subspan(n_rules), met);
    const bool is_fresh = text == kFreshText || text == kPastFresh;
    if (plan.is_unique && is_fresh) {
      if (!plan.is_monotone) return {kDone, slot[kSlotParent], kPastFresh};
      text = kPastFresh;
    } else if (plan.is_unique) {
      note_value(frame, canonical(text_between(slot[kSlotText], text)));
    }
    if (frame[kArrayText] == 0) text = 0;
  }
  const uint32_t id = frames_.intern(frame);
  return {can_meet(frame) ? uint32_t{kAfterValue} : uint32_t{kPlaceDead}, id, text};
}

}  // namespace ingot
