// SchemaMachine: how values begin and end.
#include <algorithm>

#include "text/grammar/machine_layout.h"
#include "text/grammar/schema_machine.h"

namespace ingot {

GrammarState SchemaMachine::begin_value(uint32_t slot, uint8_t byte, uint32_t text) {
  const uint32_t value = frames_[slot][kSlotPlan];
  const auto scalar = [&](JsonType type) -> GrammarState {
    const uint32_t place = without_seen(first_word(value, type), frames_[slot][kSlotParent]);
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
      const ObjectPlan& plan = object_plan(value);
      Words frame{kObject, slot, static_cast<uint32_t>(values_[value].object), 0, 0, text, 0};
      frame.resize(frame.size() + n_words(plan.rules.size()) + n_words(plan.names.size()));
      const uint32_t id = frames_.intern(frame);
      if (!can_meet(id)) return {};
      const bool can_end = !close_object(id, 0).is_dead();
      return {can_end || name_set(id).any ? uint32_t{kFirstName} : uint32_t{kPlaceDead}, id, text};
    }
    case '[': {
      const ArrayPlan& plan = array_plan(value);
      Words frame{kArray, slot, static_cast<uint32_t>(values_[value].array), 0, text};
      frame.resize(frame.size() + n_words(plan.rules.size()) + plan.rules.size());
      const uint32_t id = frames_.intern(frame);
      if (!can_meet(id)) return {};
      const bool can_end = !close_array(id, 0).is_dead();
      return {can_end || enter_item(id, 0) != 0 ? uint32_t{kFirstItem} : uint32_t{kPlaceDead}, id, text};
    }
    default: return byte == '-' || (byte >= '0' && byte <= '9') ? scalar(JsonType::kNumber) : GrammarState{};
  }
}

GrammarState SchemaMachine::close_object(uint32_t frame, uint32_t text) {
  const Words words = frames_.copy(frame);
  const ObjectPlan& plan = *objects_[words[kObjectPlan]];
  const auto truth = [&](uint32_t r) { return object_truth(plan, words, r, true); };
  if (f_.evaluate(plan.need, truth) != Truth::kTrue) return {};
  std::vector<bool> met;
  for (Formula goal : plan.goals) met.push_back(f_.evaluate(goal, truth) == Truth::kTrue);
  return end_value(words[kObjectSlot], met, words[kObjectText] == 0 ? 0 : text);
}

GrammarState SchemaMachine::close_array(uint32_t frame, uint32_t text) {
  const Words words = frames_.copy(frame);
  const ArrayPlan& plan = *arrays_[words[kArrayPlan]];
  const auto truth = [&](uint32_t r) { return array_truth(plan, words, r, true); };
  if (f_.evaluate(plan.need, truth) != Truth::kTrue) return {};
  std::vector<bool> met;
  for (Formula goal : plan.goals) met.push_back(f_.evaluate(goal, truth) == Truth::kTrue);
  return end_value(words[kArraySlot], met, words[kArrayText] == 0 ? 0 : text);
}

// met: for each goal of the slot's plan, whether the value meets the goal.
GrammarState SchemaMachine::end_value(uint32_t slot_id, const std::vector<bool>& met, uint32_t text) {
  const Words slot = frames_.copy(slot_id);
  if (slot[kSlotParent] == 0) return {kDone, 0, 0};
  Words frame = frames_.copy(slot[kSlotParent]);
  const auto missed = [&](uint32_t link) { return link != 0 && !met[link - 1]; };
  if (frame[0] == kObject) {
    const ObjectPlan& plan = *objects_[frame[kObjectPlan]];
    for (uint32_t r = 0; r < plan.rules.size(); ++r) {
      if (missed(slot[kSlotLink + r])) set_bit(std::span(frame).subspan(kObjectBits), r);
    }
    if (frame[kObjectText] == 0) text = 0;
  } else {
    const ArrayPlan& plan = *arrays_[frame[kArrayPlan]];
    const size_t n_rules = plan.rules.size(), counts = kArrayBits + n_words(n_rules);
    for (uint32_t r = 0; r < n_rules; ++r) {
      if (missed(slot[kSlotLink + r])) set_bit(std::span(frame).subspan(kArrayBits), r);
      const uint32_t contains = slot[kSlotLink + n_rules + r];
      if (contains != 0 && met[contains - 1]) frame[counts + r] = std::min<uint32_t>(frame[counts + r] + 1, 1u << 30);
    }
    frame[kArrayCount] = std::min(frame[kArrayCount] + 1, plan.most);
    const bool is_fresh = text == kFreshText || text == kPastFresh;
    if (plan.is_unique && is_fresh) {
      if (!plan.is_monotone) return {kDone, slot[kSlotParent], kPastFresh};
      text = kPastFresh;
    } else if (plan.is_unique) {
      const uint32_t item = canonical(text_between(slot[kSlotText], text));
      const auto items = frame.begin() + static_cast<ptrdiff_t>(counts + n_rules);
      const auto at = std::lower_bound(items, frame.end(), item);
      if (at != frame.end() && *at == item) {
        for (uint32_t r = 0; r < n_rules; ++r) {
          if (table_->arrays[plan.rules[r]].is_unique) set_bit(std::span(frame).subspan(kArrayBits), r);
        }
      } else {
        frame.insert(at, item);
      }
    }
    if (frame[kArrayText] == 0) text = 0;
  }
  const uint32_t id = frames_.intern(frame);
  return {can_meet(id) ? uint32_t{kAfterValue} : uint32_t{kPlaceDead}, id, text};
}

}  // namespace ingot
