// SchemaMachine: the names of members.
#include <algorithm>

#include "text/grammar/machine_layout.h"
#include "text/grammar/schema_machine.h"

namespace ingot {

// The names that may come next in an object.
const SchemaMachine::NameSet& SchemaMachine::name_set(uint32_t frame) { return *name_sets_[name_set_id(frame)]; }

uint32_t SchemaMachine::name_set_id(uint32_t frame) {
  if (const auto it = set_of_frame_.find(frame); it != set_of_frame_.end()) return it->second;
  const Words words = frames_.copy(frame);
  ObjectPlan& plan = *objects_[words[kObjectPlan]];
  auto set = std::make_unique<NameSet>();
  set->plan = words[kObjectPlan];
  set->allowed.resize(plan.names.size());
  for (uint32_t name = 0; name < plan.names.size(); ++name) set->allowed[name] = allows_name(plan, words, name);
  set->others = plan.tracks_names ? without_names(other_names(plan, words), words) : other_names(plan, words);
  set->below.push_back(0);
  for (uint32_t name : plan.sorted) set->below.push_back(set->below.back() + set->allowed[name]);
  set->any = set->below.back() > 0 || set->others != RegularLanguages::kNothing;
  set->is_free = set->others == l_.any_text() && plan.patterns.empty() && plan.is_ascii;
  Words key{set->plan, set->others};
  for (bool allowed : set->allowed) key.push_back(allowed);
  const auto [it, is_new] = set_index_.try_emplace(std::move(key), static_cast<uint32_t>(name_sets_.size()));
  if (is_new) name_sets_.push_back(std::move(set));
  return set_of_frame_[frame] = it->second;
}

bool SchemaMachine::allows_name(ObjectPlan& plan, const Words& frame, uint32_t name) {
  const std::span<const uint32_t> seen(frame.data() + kObjectBits + n_words(plan.rules.size()),
                                       n_words(plan.names.size()));
  if (has_bit(seen, name) || (!options_.any_order && name < frame[kObjectOrder])) return false;
  const bool is_plain = plan.rules.size() == 1 && plan.need == f_.leaf(0);
  if (is_plain) {  // with a single rule that must hold, the result for a name never changes and is cached
    const ObjectRule& rule = table_->objects[plan.rules[0]];
    if (rule.max >= 0 && static_cast<int>(frame[kObjectCount]) >= rule.max) return false;
    if (!options_.any_order &&
        std::ranges::any_of(plan.required[0], [&](uint32_t other) { return other < name && !has_bit(seen, other); })) {
      return false;
    }
    if (plan.child[name] < 0) {
      const Formula formula = member_formula(plan, 0, static_cast<int>(name), plan.name_matches[name]);
      const bool can_be = formula == Formulas::kTrue || is_possible(value_plan({formula}, f_.leaf(0)));
      plan.child[name] = can_be;
    }
    return plan.child[name] == 1;
  }
  Words words = frame, link;
  return plan_member(words, static_cast<int>(name), plan.name_matches[name], link) != UINT32_MAX;
}

// The names that no rule mentions, and after which `need` can still become true.
SchemaMachine::Language SchemaMachine::other_names(const ObjectPlan& plan, std::span<const uint32_t> frame) {
  const auto seen = frame.subspan(kObjectBits + n_words(plan.rules.size()));
  std::vector<Language> per_rule;
  for (uint32_t r = 0; r < plan.rules.size(); ++r) {
    const ObjectRule& rule = table_->objects[plan.rules[r]];
    const bool is_out = object_truth(plan, frame, r, false) == Truth::kFalse ||
                        (rule.max >= 0 && static_cast<int>(frame[kObjectCount]) >= rule.max) ||
                        (!options_.any_order &&
                         std::ranges::any_of(plan.required[r], [&](uint32_t name) { return !has_bit(seen, name); }));
    const auto can_be = [&](SchemaId id) {
      return id == kAnySchema || (id != kNoSchema && is_possible(value_plan({f_.leaf(id)}, f_.leaf(0))));
    };
    std::vector<Language> patterns, barred;
    for (const auto& [language, schema] : rule.patterns) (can_be(schema) ? patterns : barred).push_back(language);
    Language names = can_be(rule.additional) ? l_.any_text() : l_.any_of(std::move(patterns));
    if (!barred.empty()) names = l_.all_of({names, l_.complement(l_.any_of(std::move(barred)))});
    per_rule.push_back(is_out              ? RegularLanguages::kNothing
                       : rule.limits_names ? l_.all_of({names, rule.names})
                                           : names);
  }
  const Language names = fold_names(plan, plan.need, per_rule, true);
  return l_.is_live(names) ? names : RegularLanguages::kNothing;
}

// `names` without those that would repeat a name of `frame`.
SchemaMachine::Language SchemaMachine::without_names(Language names, std::span<const uint32_t> frame) {
  const std::pair<int, int> counts = l_.char_counts(names);
  if (names == RegularLanguages::kNothing || (counts.first >= 0 && counts.second < 0)) return names;
  std::vector<Language> barred;
  for (const uint32_t number : seen_names(frame)) {
    const std::string name = string_of(canonical_texts_[number]);
    if (may_have_to_repeat(counts, name)) barred.push_back(l_.literal(name));
  }
  if (barred.empty()) return names;
  const Language others = l_.all_of({names, l_.complement(l_.any_of(std::move(barred)))});
  return l_.is_live(others) ? others : RegularLanguages::kNothing;
}

// The canonical texts of the names that `frame` has and that no rule mentions, if its plan tracks names.
std::span<const uint32_t> SchemaMachine::seen_names(std::span<const uint32_t> frame) const {
  const ObjectPlan& plan = *objects_[frame[kObjectPlan]];
  return frame.subspan(kObjectBits + n_words(plan.rules.size()) + n_words(plan.names.size()));
}

SchemaMachine::Language SchemaMachine::fold_names(const ObjectPlan& plan, Formula id,
                                                  const std::vector<Language>& names, bool is_positive) {
  switch (f_.kind(id)) {
    case Formulas::Kind::kFalse:
    case Formulas::Kind::kTrue:
      return (id == Formulas::kTrue) == is_positive ? l_.any_text() : RegularLanguages::kNothing;
    case Formulas::Kind::kLeaf: return is_positive ? names[f_.number(id)] : l_.any_text();
    case Formulas::Kind::kNot: return fold_names(plan, f_.parts(id)[0], names, !is_positive);
    default: break;
  }
  const Words parts(f_.parts(id).begin(), f_.parts(id).end());
  std::vector<Language> next;
  for (Formula part : parts) next.push_back(fold_names(plan, part, names, is_positive));
  const bool is_all = (f_.kind(id) == Formulas::Kind::kAll) == is_positive && f_.kind(id) != Formulas::Kind::kOne;
  if (is_all && std::ranges::find(next, l_.any_text()) != next.end() && next.size() > 1)
    std::erase(next, l_.any_text());
  if (next.empty()) return l_.any_text();
  return is_all ? l_.all_of(std::move(next)) : l_.any_of(std::move(next));
}

uint32_t SchemaMachine::begin_name(uint32_t frame) {
  const uint32_t set = name_set_id(frame);
  if (!name_sets_[set]->any) return kDead;
  Words words{kName, 0, 0, set, 1, name_sets_[set]->others};
  const ObjectPlan& plan = *objects_[name_sets_[set]->plan];
  words.insert(words.end(), plan.patterns.begin(), plan.patterns.end());
  return word(std::move(words));
}

GrammarState SchemaMachine::end_name(GrammarState state) {
  const Words word = words_.copy(state.place - kFirstWord);
  const NameSet& set = *name_sets_[word[kNameSet]];
  const ObjectPlan& plan = *objects_[set.plan];
  const int name = word[kNameNode] == 0 ? -1 : plan.nodes[word[kNameNode] - 1].name;
  std::vector<bool> matched;
  for (size_t i = kPatterns; i < word.size(); ++i) matched.push_back(l_.has_empty(word[i]));
  uint32_t frame = state.frame;
  if (plan.tracks_names) {
    Words words = frames_.copy(frame);
    const bool is_fresh = state.text == kFreshText || state.text == kPastFresh;
    if (is_fresh) state.text = kPastFresh;
    if (name < 0 && !is_fresh) {
      const uint32_t text = canonical("\"" + text_between(words[kNameText], state.text));
      const auto names = words.end() - static_cast<ptrdiff_t>(seen_names(words).size());
      const auto at = std::lower_bound(names, words.end(), text);
      if (at != words.end() && *at == text) return {};
      words.insert(at, text);
    }
    words[kNameText] = 0;
    if (words[kObjectText] == 0) state.text = 0;
    frame = frames_.intern(words);
  }
  const uint32_t slot = enter_member(frame, name, matched, 0);
  return {slot == 0 ? uint32_t{kPlaceDead} : uint32_t{kColon}, slot, state.text};
}

}  // namespace ingot
