// SchemaMachine: the names of members.
#include <algorithm>

#include "text/grammar/machine/layout.h"
#include "text/grammar/machine/schema_machine.h"

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
  allow_names(plan, words, *set);
  set->below.push_back(0);
  for (uint32_t name : plan.sorted) set->below.push_back(set->below.back() + set->allowed[name]);
  set->any = set->below.back() > 0 || set->others != RegularLanguages::kNothing;
  set->is_free = set->others == languages_.any_text() && plan.patterns.empty() && plan.is_ascii;
  Words key{set->plan, set->others};
  for (bool allowed : set->allowed) key.push_back(allowed);
  const auto [it, is_new] = set_index_.try_emplace(std::move(key), static_cast<uint32_t>(name_sets_.size()));
  if (is_new) name_sets_.push_back(std::move(set));
  return set_of_frame_[frame] = it->second;
}

// The members that `frame` may have next: names, then classes of names, counted on from the names.
SchemaMachine::Words SchemaMachine::ways_to_go_on(const ObjectPlan& plan, std::span<const uint32_t> frame) const {
  const auto broken = frame.subspan(kObjectBits), seen = broken.subspan(n_words(plan.rules.size()));
  Words ways;
  for (uint32_t name = 0; name < plan.names.size(); ++name) {
    const bool is_open = !has_bit(seen, name) && (options_.any_order || name >= frame[kObjectOrder]);
    if (is_open && !plan.is_unsure[name]) ways.push_back(name);
  }
  for (size_t i = 0; i < plan.classes.size(); ++i) ways.push_back(static_cast<uint32_t>(plan.names.size() + i));
  languages_.spend(1 + ways.size() / 16);
  return ways;
}

// Sets the names that `set` allows: names after which the object can still become complete.
void SchemaMachine::allow_names(ObjectPlan& plan, const Words& frame, NameSet& set) {
  const auto seen = std::span(frame).subspan(kObjectBits + n_words(plan.rules.size()));
  const bool is_plain = plan.rules.size() == 1 && plan.need == formulas_.leaf(0);
  uint32_t n_missing = 0, first_missing = UINT32_MAX;  // names that the one rule requires
  std::vector<bool> is_missing(plan.names.size() + plan.classes.size());
  for (uint32_t name : is_plain ? plan.required[0] : Words()) {
    if (has_bit(seen, name)) continue;
    ++n_missing;
    is_missing[name] = true;
    first_missing = std::min(first_missing, name);
  }
  std::vector<Language> others;
  const auto n_names = static_cast<uint32_t>(plan.names.size());
  for (uint32_t way : ways_to_go_on(plan, frame)) {
    Words words = frame, link;
    const bool is_named = way < n_names;
    ObjectPlan::NameClass* const in = is_named ? nullptr : &plan.classes[way - n_names];
    const Language names = is_named ? 0 : plan.tracks_names ? without_names(in->names, frame, false) : in->names;
    if (!is_named && names == RegularLanguages::kNothing) continue;
    const ObjectRule* rule = is_plain ? &table_->objects[plan.rules[0]] : nullptr;
    const auto after = static_cast<int>(frame[kObjectCount] + 1 + n_missing - is_missing[way]);
    bool is_allowed = false;
    if (rule != nullptr && (rule->min <= after || (plan.has_free_names && rule->max < 0))) {
      is_allowed = allows_plainly(plan, frame, way, n_missing - is_missing[way], first_missing);
    } else {
      if (!is_named && plan.tracks_names) {
        const auto example = languages_.example(without_names(in->names, frame, true));
        if (!example) continue;
        add_seen_name(words, canonical(json_string(*example)));
      }
      is_allowed = plan_member(words, is_named ? static_cast<int>(way) : -1,
                               is_named ? plan.name_matches[way] : in->matched, link) != UINT32_MAX;
    }
    if (!is_allowed) continue;
    if (is_named) {
      set.allowed[way] = true;
    } else {
      others.push_back(names);
    }
  }
  set.others = languages_.any_of(std::move(others));
}

// The same for one name or class of names, in an object with a single rule that must hold. Whether the value is
// possible never changes, so it is stored.
bool SchemaMachine::allows_plainly(ObjectPlan& plan, const Words& frame, uint32_t way, uint32_t n_missing,
                                   uint32_t first_missing) {
  const ObjectRule& rule = table_->objects[plan.rules[0]];
  const auto n_names = static_cast<uint32_t>(plan.names.size());
  if (!options_.any_order && first_missing < way) return false;
  if (rule.max >= 0 && static_cast<int>(frame[kObjectCount] + 1 + n_missing) > rule.max) return false;
  int8_t& stored = way < n_names ? plan.child[way] : plan.classes[way - n_names].is_possible;
  if (stored < 0) {
    const Formula formula = way < n_names ? member_formula(plan, 0, static_cast<int>(way), plan.name_matches[way])
                                          : member_formula(plan, 0, -1, plan.classes[way - n_names].matched);
    stored = formula == Formulas::kTrue || is_possible(value_plan({formula}, formulas_.leaf(0)));
  }
  return stored == 1;
}

// `names` without those that would repeat a name of `frame`. If it is not exact, names are left out only where a name
// might have to repeat another.
SchemaMachine::Language SchemaMachine::without_names(Language names, std::span<const uint32_t> frame, bool is_exact) {
  const std::pair<int, int> counts = is_exact ? std::pair{-1, -1} : languages_.char_counts(names);
  if (names == RegularLanguages::kNothing || (counts.first >= 0 && counts.second < 0)) return names;
  std::vector<Language> barred;
  for (const uint32_t number : seen_names(frame)) {
    const std::string name = string_of(canonical_texts_[number]);
    if (may_have_to_repeat(counts, name)) barred.push_back(languages_.literal(name));
  }
  if (barred.empty()) return names;
  const Language others = languages_.all_of({names, languages_.complement(languages_.any_of(std::move(barred)))});
  return languages_.is_live(others) ? others : RegularLanguages::kNothing;
}

// The canonical texts of the names that `frame` has and that no rule mentions, if its plan tracks names.
std::span<const uint32_t> SchemaMachine::seen_names(std::span<const uint32_t> frame) const {
  const ObjectPlan& plan = *objects_[frame[kObjectPlan]];
  return frame.subspan(kObjectBits + n_words(plan.rules.size()) + n_words(plan.names.size()));
}

// Returns false if the name is not new.
bool SchemaMachine::add_seen_name(Words& frame, uint32_t name) const {
  const auto names = frame.end() - static_cast<ptrdiff_t>(seen_names(frame).size());
  const auto at = std::lower_bound(names, frame.end(), name);
  if (at != frame.end() && *at == name) return false;
  frame.insert(at, name);
  return true;
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
  for (size_t i = kPatterns; i < word.size(); ++i) matched.push_back(languages_.has_empty(word[i]));
  uint32_t frame = state.frame;
  if (plan.tracks_names) {
    Words words = frames_.copy(frame);
    const bool is_fresh = state.text == kFreshText || state.text == kPastFresh;
    if (is_fresh) state.text = kPastFresh;
    if (name < 0 && !is_fresh && !add_seen_name(words, canonical("\"" + text_between(words[kNameText], state.text))))
      return {};
    words[kNameText] = 0;
    if (words[kObjectText] == 0) state.text = 0;
    frame = frames_.intern(words);
  }
  const uint32_t slot = enter_member(frame, name, matched, 0);
  return {slot == 0 ? uint32_t{kPlaceDead} : uint32_t{kColon}, slot, state.text};
}

}  // namespace ingot
