// SchemaMachine: the goals of members and items.
#include <algorithm>

#include "text/grammar/languages/numbers.h"
#include "text/grammar/machine/layout.h"
#include "text/grammar/machine/schema_machine.h"

namespace ingot {

SchemaMachine::Formula SchemaMachine::schema_formula(SchemaId id) {
  return id == kAnySchema ? Formulas::kTrue : id == kNoSchema ? Formulas::kFalse : formulas_.leaf(id);
}

SchemaMachine::Formula SchemaMachine::member_formula(const ObjectPlan& plan, uint32_t r, int name,
                                                     const std::vector<bool>& matched) {
  const ObjectRule& rule = table_->objects[plan.rules[r]];
  const auto is_matched = [&](Language language) {
    return matched[static_cast<size_t>(std::ranges::find(plan.patterns, language) - plan.patterns.begin())];
  };
  if (rule.limits_names && !is_matched(rule.names)) return Formulas::kFalse;
  std::vector<Formula> parts;
  const auto add = [&](SchemaId id) { parts.push_back(schema_formula(id)); };
  if (name >= 0 && plan.schemas[r][name] != UINT32_MAX) add(plan.schemas[r][name]);
  for (const auto& [language, schema] : rule.patterns) {
    if (is_matched(language)) add(schema);
  }
  if (parts.empty()) add(rule.additional);
  return formulas_.all(std::move(parts));
}

// Returns the plan of a member: the conditions under which `need` can still become true. per_rule: the goal that each
// rule sets for the member. A broken rule (`now` is kFalse) sets no goal. A rule that must fail need not fail at this
// member if the rule can fail later.
uint32_t SchemaMachine::child_plan(Formula need, const std::vector<Formula>& per_rule,
                                   const std::vector<bool>& can_fail_later, const std::vector<Truth>& now,
                                   std::vector<Formula> goals, Words& link) {
  for (size_t r = 0; r < per_rule.size(); ++r) {
    link.push_back(0);
    if (now[r] == Truth::kFalse || per_rule[r] == Formulas::kTrue) continue;
    const auto it = std::ranges::find(goals, per_rule[r]);
    link.back() = static_cast<uint32_t>(it - goals.begin()) + 1;
    if (it == goals.end()) goals.push_back(per_rule[r]);
  }
  const auto form = [&](auto& self, Formula id, bool is_positive) -> Formula {
    languages_.spend(1);  // a kOne has the square of its parts
    switch (formulas_.kind(id)) {
      case Formulas::Kind::kFalse:
      case Formulas::Kind::kTrue: return (id == Formulas::kTrue) == is_positive ? Formulas::kTrue : Formulas::kFalse;
      case Formulas::Kind::kLeaf: {
        const uint32_t r = formulas_.number(id);
        if (now[r] == Truth::kFalse) return is_positive ? Formulas::kFalse : Formulas::kTrue;
        const Formula goal = link[r] ? formulas_.leaf(link[r] - 1) : Formulas::kTrue;
        if (is_positive) return goal;
        if (now[r] == Truth::kTrue) return Formulas::kFalse;
        return can_fail_later[r] ? Formulas::kTrue : formulas_.negation(goal);
      }
      case Formulas::Kind::kNot: return self(self, formulas_.parts(id)[0], !is_positive);
      case Formulas::Kind::kOne: {
        if (!is_positive) return Formulas::kTrue;
        const Words parts(formulas_.parts(id).begin(), formulas_.parts(id).end());
        std::vector<Formula> choices;
        for (size_t i = 0; i < parts.size(); ++i) {
          std::vector<Formula> all{self(self, parts[i], true)};
          for (size_t j = 0; j < parts.size() && all[0] != Formulas::kFalse; ++j) {
            if (j != i) all.push_back(self(self, parts[j], false));
          }
          choices.push_back(formulas_.all(std::move(all)));
        }
        return formulas_.any(std::move(choices));
      }
      default: {
        const Words parts(formulas_.parts(id).begin(), formulas_.parts(id).end());
        std::vector<Formula> next;
        for (Formula part : parts) next.push_back(self(self, part, is_positive));
        return (formulas_.kind(id) == Formulas::Kind::kAll) == is_positive ? formulas_.all(std::move(next))
                                                                           : formulas_.any(std::move(next));
      }
    }
  };
  return value_plan(std::move(goals), form(form, need, true));
}

Truth SchemaMachine::object_truth(const ObjectPlan& plan, std::span<const uint32_t> frame, uint32_t r,
                                  bool is_final) const {
  const auto broken = frame.subspan(kObjectBits), seen = broken.subspan(n_words(plan.rules.size()));
  if (has_bit(broken, r)) return Truth::kFalse;
  const ObjectRule& rule = table_->objects[plan.rules[r]];
  const bool is_complete = static_cast<int>(frame[kObjectCount]) >= rule.min &&
                           std::ranges::all_of(plan.required[r], [&](uint32_t name) { return has_bit(seen, name); });
  if (is_complete && (is_final || rule.is_presence_only())) return Truth::kTrue;
  return is_final ? Truth::kFalse : Truth::kUnknown;
}

Truth SchemaMachine::array_truth(const ArrayPlan& plan, std::span<const uint32_t> frame, uint32_t r,
                                 bool is_final) const {
  const auto broken = frame.subspan(kArrayBits), counts = broken.subspan(n_words(plan.rules.size()));
  if (has_bit(broken, r)) return Truth::kFalse;
  const ArrayRule& rule = table_->arrays[plan.rules[r]];
  if (!is_final) return Truth::kUnknown;
  const bool is_complete =
      static_cast<int>(frame[kArrayCount]) >= rule.min && static_cast<int>(counts[r]) >= rule.min_contains;
  return is_complete ? Truth::kTrue : Truth::kFalse;
}

bool SchemaMachine::can_meet(std::span<const uint32_t> words) const {
  if (words[0] == kObject) {
    const ObjectPlan& plan = *objects_[words[kObjectPlan]];
    return formulas_.evaluate(plan.need, [&](uint32_t r) { return object_truth(plan, words, r, false); }) !=
           Truth::kFalse;
  }
  const ArrayPlan& plan = *arrays_[words[kArrayPlan]];
  return formulas_.evaluate(plan.need, [&](uint32_t r) { return array_truth(plan, words, r, false); }) != Truth::kFalse;
}

// Begins the member `name` in the object's frame, and returns the plan of the member's value. name -1: no rule names
// the member. Returns UINT32_MAX if the object cannot become complete then.
uint32_t SchemaMachine::plan_member(Words& frame, int name, const std::vector<bool>& matched, Words& link) {
  const uint32_t child = begin_member(frame, name, matched, link, !options_.any_order);
  return only_finishing(frame, child, link);
}

uint32_t SchemaMachine::begin_member(Words& frame, int name, const std::vector<bool>& matched, Words& link,
                                     bool in_order) {
  const ObjectPlan& plan = *objects_[frame[kObjectPlan]];
  const size_t n_rules = plan.rules.size();
  const std::span<uint32_t> broken(frame.data() + kObjectBits, n_words(n_rules));
  const std::span<uint32_t> seen(frame.data() + kObjectBits + broken.size(), n_words(plan.names.size()));
  if (name >= 0) set_bit(seen, static_cast<uint32_t>(name));
  if (plan.counts) frame[kObjectCount] = std::min(frame[kObjectCount] + 1, plan.max_count);
  const uint32_t order = name >= 0 ? static_cast<uint32_t>(name) : static_cast<uint32_t>(plan.names.size());
  if (in_order) frame[kObjectOrder] = order + (name >= 0);
  std::vector<Formula> per_rule(n_rules, Formulas::kTrue);
  std::vector<bool> can_fail_later(n_rules, true);
  std::vector<Truth> now(n_rules, Truth::kFalse);
  for (uint32_t r = 0; r < n_rules; ++r) {
    if (has_bit(broken, r)) continue;
    const ObjectRule& rule = table_->objects[plan.rules[r]];
    per_rule[r] = member_formula(plan, r, name, matched);
    const bool is_skipped = in_order && std::ranges::any_of(plan.required[r], [&](uint32_t other) {
                              return other < order && !has_bit(seen, other);
                            });
    if (is_skipped || per_rule[r] == Formulas::kFalse ||
        (rule.max >= 0 && static_cast<int>(frame[kObjectCount]) > rule.max)) {
      set_bit(broken, r);
      continue;
    }
    now[r] = object_truth(plan, frame, r, false);
    can_fail_later[r] = !can_only_hold(plan, rule, r, frame);
  }
  languages_.spend(1 + n_rules / 8);
  return child_plan(plan.need, per_rule, can_fail_later, now, {}, link);
}

// Whether no further member can break the rule.
bool SchemaMachine::can_only_hold(const ObjectPlan& plan, const ObjectRule& rule, uint32_t r,
                                  std::span<const uint32_t> frame) const {
  if (!rule.patterns.empty() || rule.additional != kAnySchema || rule.max >= 0 || rule.limits_names) return false;
  if (static_cast<int>(frame[kObjectCount]) < rule.min) return false;
  const auto seen = frame.subspan(kObjectBits + n_words(plan.rules.size()));
  const auto is_seen = [&](uint32_t name) { return has_bit(seen, name); };
  return std::ranges::all_of(plan.bound[r], is_seen) && std::ranges::all_of(plan.required[r], is_seen);
}

uint32_t SchemaMachine::enter_member(uint32_t frame, int name, const std::vector<bool>& matched, uint32_t text) {
  Words words = frames_.copy(frame), link;
  languages_.spend(words.size());
  const uint32_t child = plan_member(words, name, matched, link);
  if (child == UINT32_MAX) return 0;
  const uint32_t parent = frames_.intern(words);
  Words slot{kSlot, parent, child, text};
  slot.insert(slot.end(), link.begin(), link.end());
  return frames_.intern(slot);
}

uint32_t SchemaMachine::enter_item(uint32_t frame, uint32_t text) {
  Words words = frames_.copy(frame), link, contains;
  languages_.spend(words.size());
  const uint32_t begun = begin_item(words, link, contains);
  const uint32_t child = only_finishing_items(words, begun, link, contains);
  if (child == UINT32_MAX) return 0;
  Words slot{kSlot, frames_.intern(words), child, text};
  slot.insert(slot.end(), link.begin(), link.end());
  slot.insert(slot.end(), contains.begin(), contains.end());
  return frames_.intern(slot);
}

// Begins an item in the array's frame, and returns the plan of the item. contains: the goals that count.
uint32_t SchemaMachine::begin_item(Words& words, Words& link, Words& contains) {
  const ArrayPlan& plan = *arrays_[words[kArrayPlan]];
  const size_t n_rules = plan.rules.size();
  const std::span<uint32_t> broken(words.data() + kArrayBits, n_words(n_rules));
  const std::span<uint32_t> counts(words.data() + kArrayBits + broken.size(), n_rules);
  const int n = static_cast<int>(words[kArrayCount]);  // items before this one
  std::vector<Formula> per_rule(n_rules, Formulas::kTrue), contained(n_rules, Formulas::kTrue);
  std::vector<bool> can_fail_later(n_rules, true);
  std::vector<Truth> now(n_rules, Truth::kFalse);
  for (uint32_t r = 0; r < n_rules; ++r) {
    const ArrayRule& rule = table_->arrays[plan.rules[r]];
    const SchemaId item = n < static_cast<int>(rule.prefix.size()) ? rule.prefix[n] : rule.rest;
    if (has_bit(broken, r) || item == kNoSchema || (rule.max >= 0 && n >= rule.max)) {
      set_bit(broken, r);
      continue;
    }
    std::vector<Formula> parts{item == kAnySchema ? Formulas::kTrue : formulas_.leaf(item)};
    const bool counts_items = rule.min_contains > 0 || rule.max_contains >= 0;
    if (counts_items) contained[r] = formulas_.leaf(rule.contains);
    if (rule.max >= 0 && rule.max - n <= rule.min_contains - static_cast<int>(counts[r])) parts.push_back(contained[r]);
    if (rule.max_contains >= 0 && static_cast<int>(counts[r]) >= rule.max_contains)
      parts.push_back(formulas_.negation(contained[r]));
    per_rule[r] = formulas_.all(std::move(parts));
    if (per_rule[r] == Formulas::kFalse) set_bit(broken, r);
    if (!has_bit(broken, r)) now[r] = Truth::kUnknown;
    can_fail_later[r] = n + 1 < static_cast<int>(rule.prefix.size()) || rule.rest != kAnySchema || rule.max >= 0 ||
                        rule.is_unique || counts_items || n + 1 < rule.min;
  }
  std::vector<Formula> goals;
  for (uint32_t r = 0; r < n_rules; ++r) {
    contains.push_back(0);
    if (now[r] == Truth::kFalse || contained[r] == Formulas::kTrue) continue;
    goals.push_back(contained[r]);
    contains.back() = static_cast<uint32_t>(goals.size());
  }
  languages_.spend(1 + n_rules / 8);
  return child_plan(plan.need, per_rule, can_fail_later, now, std::move(goals), link);
}

// ---- Members and items that have ended, with the goals that they have met

void SchemaMachine::note_member(Words& frame, std::span<const uint32_t> link, const Outcome& met) const {
  for (uint32_t r = 0; r < link.size(); ++r) {
    if (link[r] != 0 && met[link[r] - 1] == Truth::kFalse) set_bit(std::span(frame).subspan(kObjectBits), r);
  }
}

void SchemaMachine::note_item(Words& frame, std::span<const uint32_t> link, std::span<const uint32_t> contains,
                              const Outcome& met) const {
  const ArrayPlan& plan = *arrays_[frame[kArrayPlan]];
  const size_t n_rules = plan.rules.size(), counts = kArrayBits + n_words(n_rules);
  for (uint32_t r = 0; r < n_rules; ++r) {
    if (link[r] != 0 && met[link[r] - 1] == Truth::kFalse) set_bit(std::span(frame).subspan(kArrayBits), r);
    const ArrayRule& rule = table_->arrays[plan.rules[r]];
    const auto max_count = static_cast<uint32_t>(std::max(rule.min_contains, rule.max_contains) + 1);
    if (contains[r] != 0 && met[contains[r] - 1] == Truth::kTrue)
      frame[counts + r] = std::min(frame[counts + r] + 1, max_count);
  }
  frame[kArrayCount] = std::min(frame[kArrayCount] + 1, plan.max_count);
}

// Adds the item with this canonical number to the items of an array that may have to differ. 0: the item repeats
// another.
void SchemaMachine::note_value(Words& frame, uint32_t value) const {
  const ArrayPlan& plan = *arrays_[frame[kArrayPlan]];
  const auto items = frame.end() - static_cast<ptrdiff_t>(seen_values(frame).size());
  const auto at = std::lower_bound(items, frame.end(), value);
  if (value != 0 && (at == frame.end() || *at != value)) {
    frame.insert(at, value);
    return;
  }
  for (uint32_t r = 0; r < plan.rules.size(); ++r) {
    if (table_->arrays[plan.rules[r]].is_unique) set_bit(std::span(frame).subspan(kArrayBits), r);
  }
}

// The canonical numbers of the items so far, if a rule demands that they differ.
SchemaMachine::Words SchemaMachine::seen_values(std::span<const uint32_t> frame) const {
  const size_t n_rules = arrays_[frame[kArrayPlan]]->rules.size();
  const auto values = frame.subspan(kArrayBits + n_words(n_rules) + n_rules);
  return {values.begin(), values.end()};
}

// Whether the array is not valid if an item repeats another.
bool SchemaMachine::must_differ(const ArrayPlan& plan, std::span<const uint32_t> frame) const {
  return formulas_.evaluate(plan.need, [&](uint32_t r) {
    return table_->arrays[plan.rules[r]].is_unique ? Truth::kFalse : array_truth(plan, frame, r, false);
  }) == Truth::kFalse;
}

// Whether a text with these counts of characters (RegularLanguages::char_counts) may have to repeat `text`. If `text`
// is shorter than the greatest length, one more character makes a difference.
bool SchemaMachine::may_have_to_repeat(std::pair<int, int> counts, const std::string& text) {
  const auto n_chars = std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
  return counts.first < 0 || n_chars == counts.second;
}

// The word at `place` without the texts that would repeat an item of `frame`, if `frame` is an array whose items must
// differ.
uint32_t SchemaMachine::without_seen(uint32_t place, std::span<const uint32_t> frame) {
  if (place == kDead || frame.empty() || frame[0] != kArray) return place;
  const ArrayPlan& plan = *arrays_[frame[kArrayPlan]];
  if (!plan.is_unique || !must_differ(plan, frame)) return place;
  Words word = words_.copy(place - kFirstWord);
  const bool is_free = word[kAnyAscii] != 0;
  const std::pair<int, int> counts = is_free ? languages_.char_counts(word[kAlive]) : std::pair{-1, -1};
  if (is_free && counts.second < 0) return place;
  std::vector<Language> barred;
  for (const uint32_t value : seen_values(frame)) {
    const std::string& item = canonical_texts_[value];
    if ((item[0] == '"') != (word[0] == kString)) continue;
    const std::optional<Decimal> number = item[0] == '-' || isdigit(item[0]) ? Decimal::parse(item) : std::nullopt;
    if (word[0] == kString) {
      const std::string text = string_of(item);
      if (may_have_to_repeat(counts, text)) barred.push_back(languages_.literal(text));
    } else if (!is_structure(item)) {
      // Other spellings of a number can still become another number, except those of zero.
      barred.push_back(!number             ? languages_.literal(item)
                       : number->is_zero() ? zero_spellings(languages_)
                                           : number_literal(languages_, *number).inside);
    }
  }
  if (barred.empty()) return place;
  word[kAnyAscii] = 0;
  word[kAlive] = languages_.all_of({word[kAlive], languages_.complement(languages_.any_of(std::move(barred)))});
  return languages_.is_live(word[kAlive]) ? this->word(std::move(word)) : uint32_t{kDead};
}

// Whether the plan allows a value that differs from all items.
bool SchemaMachine::has_unseen(uint32_t plan, std::span<const uint32_t> frame) {
  for (int t = 0; t < kScalarTypes; ++t) {
    if (without_seen(first_word(plan, static_cast<JsonType>(t)), frame) != kDead) return true;
  }
  return can_be(plan, JsonType::kArray) || can_be(plan, JsonType::kObject);
}

}  // namespace ingot
