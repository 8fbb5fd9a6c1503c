// SchemaMachine: whether a value can still become complete. The machine refuses every byte after which no valid value
// is possible, so a model never meets a dead end. An object or array is searched: each member or item may be added with
// each outcome that its value can have, until the value may end. Results are stored. The search is exact and metered.
#include <algorithm>
#include <set>
#include <unordered_set>

#include "base/error.h"
#include "text/grammar/machine/layout.h"
#include "text/grammar/machine/object_search.h"

namespace ingot {

namespace {

constexpr uint32_t kMaxPossibleDepth = 256;  // of nested values that a value needs
constexpr size_t kMaxOutcomes = 256;         // of one value
constexpr size_t kMaxOtherValues = 8;        // of one item whose value must differ from others
constexpr size_t kMaxFewStates = 512;
constexpr size_t kSearchWork = 8;  // of one step of a search, in parts of expressions

// Calls undo() at the end of the scope, also when the meter ends a search.
template <class F>
class AtEnd {
 public:
  explicit AtEnd(F undo) : undo_(std::move(undo)) {}
  ~AtEnd() { undo_(); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;

 private:
  F undo_;
};

}  // namespace

bool SchemaMachine::is_possible(uint32_t plan) {
  if (values_[plan].is_possible >= 0) return values_[plan].is_possible != 0;
  if (values_[plan].depth != 0) {  // a value inside itself: without the inner value, it is possible or not
    lowest_assumed_ = std::min(lowest_assumed_, values_[plan].depth);
    return false;
  }
  languages_.spend(kSearchWork);
  if (n_open_ >= kMaxPossibleDepth)
    throw Error("the schema requires values that nest deeper than {}", kMaxPossibleDepth);
  const uint32_t own = values_[plan].depth = ++n_open_;
  uint32_t assumed = std::exchange(lowest_assumed_, UINT32_MAX);
  const AtEnd close([&] { values_[plan].depth = 0, --n_open_, lowest_assumed_ = assumed; });
  const bool found = find_possible(plan);
  const bool is_certain = found || lowest_assumed_ >= own;
  if (is_certain) values_[plan].is_possible = found;
  if (!is_certain) assumed = std::min(assumed, lowest_assumed_);
  return found;
}

bool SchemaMachine::find_possible(uint32_t plan) {
  if (values_[plan].need == Formulas::kFalse) return false;
  for (int t = 0; t < kScalarTypes; ++t) {
    if (first_word(plan, static_cast<JsonType>(t)) != kDead) return true;
  }
  return can_be(plan, JsonType::kArray) || can_be(plan, JsonType::kObject);
}

// Whether an array or an object can meet the plan.
bool SchemaMachine::can_be(uint32_t plan, JsonType type) {
  const Formula need = type == JsonType::kObject ? object_plan(plan).need : array_plan(plan).need;
  if (where_is(plan) != kNowhere) last_searched_ = plan;
  return need != Formulas::kFalse && can_finish(first_frame(plan, 0, type, 0));
}

// The frame of an object or array without members.
SchemaMachine::Words SchemaMachine::first_frame(uint32_t plan, uint32_t slot, JsonType type, uint32_t text) {
  if (type == JsonType::kObject) {
    const ObjectPlan& object = object_plan(plan);
    Words frame{kObject, slot, static_cast<uint32_t>(values_[plan].object), 0, 0, text, 0};
    frame.resize(frame.size() + n_words(object.rules.size()) + n_words(object.names.size()));
    return frame;
  }
  const ArrayPlan& array = array_plan(plan);
  Words frame{kArray, slot, static_cast<uint32_t>(values_[plan].array), 0, text};
  frame.resize(frame.size() + n_words(array.rules.size()) + array.rules.size());
  return frame;
}

bool SchemaMachine::can_end(const Words& frame) const {
  if (frame[0] == kObject) {
    const ObjectPlan& plan = *objects_[frame[kObjectPlan]];
    return formulas_.evaluate(plan.need, [&](uint32_t r) { return object_truth(plan, frame, r, true); }) ==
           Truth::kTrue;
  }
  const ArrayPlan& plan = *arrays_[frame[kArrayPlan]];
  return formulas_.evaluate(plan.need, [&](uint32_t r) { return array_truth(plan, frame, r, true); }) == Truth::kTrue;
}

// Whether an object or array can become complete from `frame`, between members.
bool SchemaMachine::can_finish(Words frame) {
  frame[1] = 0;  // the slot and the texts have no effect
  if (frame[0] == kObject) frame[kObjectText] = frame[kNameText] = 0;
  if (frame[0] == kArray) frame[kArrayText] = 0;
  const uint32_t id = frames_.intern(frame);
  if (const auto it = can_finish_.find(id); it != can_finish_.end()) return it->second;
  if (can_end(frame) || is_sure(frame, {})) return can_finish_[id] = true;
  uint32_t assumed = std::exchange(lowest_assumed_, UINT32_MAX);
  const AtEnd close([&] { lowest_assumed_ = assumed; });
  const bool found =
      frame[0] == kObject ? ObjectSearch(*this, std::move(frame), nullptr).run() : search_items(id, nullptr);
  if (found || lowest_assumed_ == UINT32_MAX) can_finish_[id] = found;
  if (!found) assumed = std::min(assumed, lowest_assumed_);
  return found;
}

// Depth-first search for a frame of an array that can end. `json`: if not null, receives the items on the way.
bool SchemaMachine::search_items(uint32_t first, std::string* json) {
  struct Step {
    uint32_t frame;
    std::vector<Added> next;  // frames after one more item, not tried yet
    std::string text = {};    // the item on the way to `frame`
  };
  std::unordered_set<uint32_t> seen{first};
  std::vector<Step> path;
  path.push_back({first, next_items(first, json != nullptr)});
  bool found = json != nullptr && can_end(frames_.copy(first));
  while (!path.empty() && !found) {
    languages_.spend(kSearchWork);
    if (path.back().next.empty()) {
      path.pop_back();
      continue;
    }
    Added added = std::move(path.back().next.back());
    path.back().next.pop_back();
    if (!seen.insert(added.frame).second) continue;
    const Words frame = frames_.copy(added.frame);
    found = can_end(frame) || (json == nullptr && is_sure(frame, {}));
    path.push_back({added.frame, {}, std::move(added.text)});
    if (!found) path.back().next = next_items(added.frame, json != nullptr);
  }
  if (found && json != nullptr) {
    for (const Step& step : path) *json += (json->empty() || step.text.empty() ? "" : ",") + step.text;
  }
  return found;
}

// The most items that any rule needs after the item that begins.
size_t SchemaMachine::n_needed(const ArrayPlan& plan, std::span<const uint32_t> frame) const {
  const auto count = static_cast<int>(frame[kArrayCount]) + 1;
  int n = 0;
  for (const int number : plan.rules) {
    const ArrayRule& rule = table_->arrays[number];
    n = std::max(n,
                 std::max({rule.min, rule.max + 1, static_cast<int>(rule.prefix.size())}) - count + rule.min_contains);
  }
  return static_cast<size_t>(std::max(n, 0));
}

// The frames after one more item, the best one last.
std::vector<SchemaMachine::Added> SchemaMachine::next_items(uint32_t id, bool has_text) {
  std::vector<Added> next;
  Words frame = frames_.copy(id), link, contains;
  const ArrayPlan& plan = *arrays_[frame[kArrayPlan]];
  const uint32_t child = begin_item(frame, link, contains);
  const bool differs = plan.is_unique && must_differ(plan, frame);
  const size_t n_later = std::min(n_needed(plan, frame), kMaxOtherValues);  // items that may have to differ
  const auto add_after = [&](const Outcome& met) {
    Words after = frame;
    note_item(after, link, contains, met);
    const auto add = [&](Words words, std::optional<std::string> text) {
      next.push_back({frames_.intern(words), text.value_or("")});
    };
    const Words before = frames_.copy(id);  // an item that only must differ from more items does not help
    if (std::equal(after.begin(), after.end() - static_cast<ptrdiff_t>(seen_values(after).size()), before.begin()))
      return;
    const uint32_t value = with_outcome(child, met);
    if (!plan.is_unique) {
      std::optional<std::string> text;
      if (!has_text || (text = example_of(value))) add(std::move(after), std::move(text));
      return;
    }
    Words others = seen_values(frame);
    for (const uint32_t item : Words(others)) {
      if (differs || !is_possible(with_values(value, {&item, 1}, true))) continue;
      Words repeated = after;
      note_value(repeated, 0);
      add(std::move(repeated), canonical_texts_[item]);
    }
    for (size_t i = 0; i <= n_later; ++i) {
      const auto text = example_of(with_values(value, others, false));
      if (!text) break;
      others.push_back(canonical(*text));
      Words differing = after;
      note_value(differing, others.back());
      add(std::move(differing), text);
    }
  };
  size_t n_outcomes = 0;
  each_outcome(child, [&](const Outcome& met, bool is_whole) {
    if (!is_whole) return Visit::kSplit;
    if (++n_outcomes > kMaxOutcomes)
      throw Error("the schema is too large: more than {} combinations of conditions on one item", kMaxOutcomes);
    add_after(met);
    return Visit::kSkip;
  });
  std::ranges::reverse(next);
  return next;
}

// A plan of the values that meet `plan` and equal one of `items` (canonical numbers), or equal none of them.
uint32_t SchemaMachine::with_values(uint32_t plan, std::span<const uint32_t> items, bool equals) {
  std::vector<Formula> goals = values_[plan].goals;
  const Formula any = equals_any(goals, items);
  return value_plan(std::move(goals), formulas_.all({values_[plan].need, equals ? any : formulas_.negation(any)}));
}

// Adds goals to equal one of `items`. Returns the formula that one of these goals is met.
SchemaMachine::Formula SchemaMachine::equals_any(std::vector<Formula>& goals, std::span<const uint32_t> items) {
  std::vector<Formula> any;
  languages_.spend(items.size());
  for (uint32_t item : items) {
    auto it = value_formulas_.find(item);
    if (it == value_formulas_.end())
      it = value_formulas_.emplace(item, add_value(canonical_texts_[item], *table_)).first;
    const auto at = std::ranges::find(goals, it->second);
    any.push_back(formulas_.leaf(static_cast<uint32_t>(at - goals.begin())));
    if (at == goals.end()) goals.push_back(it->second);
  }
  return formulas_.any(std::move(any));
}

// A plan of the values that meet the goals as `met` says.
uint32_t SchemaMachine::with_outcome(uint32_t plan, const Outcome& met) {
  return value_plan(values_[plan].goals, formulas_.all({values_[plan].need, outcome_formula(met)}));
}

SchemaMachine::Formula SchemaMachine::outcome_formula(const Outcome& met) {
  std::vector<Formula> parts;
  for (uint32_t goal = 0; goal < met.size(); ++goal) {
    if (met[goal] != Truth::kUnknown)
      parts.push_back(met[goal] == Truth::kTrue ? formulas_.leaf(goal) : formulas_.negation(formulas_.leaf(goal)));
  }
  return formulas_.all(std::move(parts));
}

// The outcomes of a plan that only scalars meet, if the words of these scalars have few states. So the constants that
// tell the parts of a oneOf apart need no search over the combinations of goals.
std::optional<std::vector<SchemaMachine::Outcome>> SchemaMachine::few_outcomes(uint32_t plan) {
  const size_t n_goals = values_[plan].goals.size();
  if (n_goals < 2 || can_be(plan, JsonType::kArray) || can_be(plan, JsonType::kObject)) return std::nullopt;
  std::set<Outcome> found;
  std::set<Words> seen;
  std::vector<Words> ready;
  for (int t = 0; t < kScalarTypes; ++t) {
    const uint32_t place = first_word(plan, static_cast<JsonType>(t));
    if (place == kDead) continue;
    ready.push_back(words_.copy(place - kFirstWord));
    ready.back()[0] = kBare;  // the bytes of a string's characters, not its escapes
  }
  while (!ready.empty()) {
    const Words word = std::move(ready.back());
    ready.pop_back();
    if (!seen.insert(word).second) continue;
    if (seen.size() > kMaxFewStates) return std::nullopt;
    if (languages_.has_empty(word[kAlive])) {
      Outcome met(n_goals, Truth::kFalse);
      for (size_t k = kGoals; k < word.size(); k += 2) {
        if (languages_.has_empty(word[k + 1])) met[word[k]] = Truth::kTrue;
      }
      found.insert(std::move(met));
    }
    const ByteGroups groups = groups_of(word);
    std::vector<bool> is_done(groups.n);
    languages_.spend(groups.n);
    for (size_t byte = 0; byte < 256; ++byte) {
      if (is_done[groups.of[byte]]) continue;
      is_done[groups.of[byte]] = true;
      Words next(word.begin(), word.begin() + kGoals);
      next[kAlive] = languages_.row(word[kAlive])[byte];
      if (next[kAlive] == RegularLanguages::kNothing) continue;
      for (size_t k = kGoals; k < word.size(); k += 2) {
        if (const Language goal = languages_.row(word[k + 1])[byte]; goal != RegularLanguages::kNothing)
          next.insert(next.end(), {word[k], goal});
      }
      ready.push_back(std::move(next));
    }
  }
  return std::vector<Outcome>(found.rbegin(), found.rend());  // those that meet the first goals come first
}

// A JSON text that meets the plan.
std::optional<std::string> SchemaMachine::example_of(uint32_t plan) {
  if (!is_possible(plan) || values_[plan].has_open_example) return std::nullopt;
  for (int t = 0; t < kScalarTypes; ++t) {
    const uint32_t place = first_word(plan, static_cast<JsonType>(t));
    if (place == kDead) continue;
    const auto text = languages_.example(words_[place - kFirstWord][kAlive]);
    if (text) return static_cast<JsonType>(t) == JsonType::kString ? json_string(*text) : *text;
  }
  std::optional<std::string> found;
  values_[plan].has_open_example = true;
  const AtEnd close([&] { values_[plan].has_open_example = false; });
  for (const JsonType type : {JsonType::kArray, JsonType::kObject}) {
    if (found || !can_be(plan, type)) continue;
    std::string json;
    Words frame = first_frame(plan, 0, type, 0);
    const bool is_found = type == JsonType::kArray ? search_items(frames_.intern(frame), &json)
                                                   : ObjectSearch(*this, std::move(frame), &json).run();
    if (is_found) found = type == JsonType::kArray ? "[" + json + "]" : "{" + json + "}";
  }
  return found;
}

// ---- Quick answers

// Whether the value can certainly become complete, whatever becomes of the rules with a link. Decides most schemas
// without a search: all rules that are not broken are assumed to hold together.
bool SchemaMachine::is_sure(const Words& frame, std::span<const uint32_t> link) {
  if (frame[0] == kArray) return is_sure_array(frame, link);
  const ObjectPlan& plan = *objects_[frame[kObjectPlan]];
  const auto broken = std::span(frame).subspan(kObjectBits), seen = broken.subspan(n_words(plan.rules.size()));
  std::vector<Truth> truth(plan.rules.size(), Truth::kUnknown);
  std::vector<int8_t> can_add(plan.names.size(), -1);
  uint32_t n_missing = 0;
  int max_members = INT32_MAX;
  const auto adds = [&](uint32_t name) {  // whether the name can be added so that no rule breaks
    if (can_add[name] < 0) {
      can_add[name] = !plan.is_unsure[name] && (options_.any_order || name >= frame[kObjectOrder]);
      std::vector<Formula> parts;
      for (uint32_t r : plan.binding) {
        if (can_add[name] && !has_bit(broken, r))
          parts.push_back(member_formula(plan, r, static_cast<int>(name), plan.name_matches[name]));
      }
      const Formula all = formulas_.all(std::move(parts));
      if (can_add[name]) can_add[name] = all == Formulas::kTrue || is_possible(value_plan({all}, formulas_.leaf(0)));
      n_missing += static_cast<uint32_t>(can_add[name]);
    }
    return can_add[name] != 0;
  };
  languages_.spend(1 + plan.rules.size() / 16);
  for (uint32_t r = 0; r < plan.rules.size(); ++r) {
    const ObjectRule& rule = table_->objects[plan.rules[r]];
    if (has_bit(broken, r)) {
      truth[r] = Truth::kFalse;
    } else if ((link.empty() || link[r] == 0) && std::ranges::all_of(plan.required[r], [&](uint32_t name) {
                 return has_bit(seen, name) || adds(name);
               })) {
      truth[r] = Truth::kTrue;
      if (rule.max >= 0) max_members = std::min(max_members, rule.max);
    }
  }
  const auto n_members = static_cast<int>(frame[kObjectCount] + n_missing);
  if (n_members > max_members) return false;
  for (uint32_t r = 0; r < plan.rules.size(); ++r) {  // any number of free names can be added, if they exist
    if (truth[r] == Truth::kTrue && n_members < table_->objects[plan.rules[r]].min &&
        (!plan.has_free_names || max_members != INT32_MAX))
      truth[r] = Truth::kUnknown;
  }
  return formulas_.evaluate(plan.need, [&](uint32_t r) { return truth[r]; }) == Truth::kTrue;
}

// The same for arrays without rules on the number of certain items.
bool SchemaMachine::is_sure_array(const Words& frame, std::span<const uint32_t> link) {
  const ArrayPlan& plan = *arrays_[frame[kArrayPlan]];
  const auto broken = std::span(frame).subspan(kArrayBits);
  if (plan.is_unique) return false;
  std::vector<Truth> truth(plan.rules.size(), Truth::kUnknown);
  int min_items = 0, max_items = INT32_MAX;
  size_t n_prefix = 0;
  for (uint32_t r = 0; r < plan.rules.size(); ++r) {
    const ArrayRule& rule = table_->arrays[plan.rules[r]];
    if (has_bit(broken, r)) {
      truth[r] = Truth::kFalse;
      continue;
    }
    n_prefix = std::max(n_prefix, rule.prefix.size());
    if ((!link.empty() && link[r] != 0) || rule.min_contains > 0 || rule.max_contains >= 0) continue;
    truth[r] = Truth::kTrue;
    min_items = std::max(min_items, rule.min);
    if (rule.max >= 0) max_items = std::min(max_items, rule.max);
  }
  if (min_items > max_items) return false;
  for (size_t i = frame[kArrayCount]; i < std::min(static_cast<size_t>(min_items), n_prefix + 1); ++i) {
    std::vector<Formula> parts;
    for (uint32_t r = 0; r < plan.rules.size(); ++r) {
      const ArrayRule& rule = table_->arrays[plan.rules[r]];
      if (!has_bit(broken, r)) parts.push_back(schema_formula(i < rule.prefix.size() ? rule.prefix[i] : rule.rest));
    }
    const Formula all = formulas_.all(std::move(parts));
    if (all != Formulas::kTrue && !is_possible(value_plan({all}, formulas_.leaf(0)))) return false;
  }
  return formulas_.evaluate(plan.need, [&](uint32_t r) { return truth[r]; }) == Truth::kTrue;
}

// ---- Plans of members after which the value can become complete

// The plan without the outcomes for which judge(met, is_whole) is kFalse. kUnknown: it depends on goals that `met`
// leaves open. UINT32_MAX if no outcome is left.
template <class Judge>
uint32_t SchemaMachine::keep_outcomes(uint32_t plan, const Judge& judge) {
  std::vector<Formula> parts{values_[plan].need};
  bool any = false;
  each_outcome(plan, [&](const Outcome& met, bool is_whole) {
    const Truth finishes = judge(met, is_whole);
    if (finishes == Truth::kUnknown) return Visit::kSplit;
    if (finishes == Truth::kFalse) parts.push_back(formulas_.negation(outcome_formula(met)));
    any |= finishes == Truth::kTrue;
    return Visit::kSkip;
  });
  if (!any) return UINT32_MAX;
  return parts.size() == 1 ? plan : value_plan(values_[plan].goals, formulas_.all(std::move(parts)));
}

// Whether the object or array can become complete from `after`, whatever becomes of the rules with an open goal.
Truth SchemaMachine::judge(const Words& after, std::span<const uint32_t> open_link, bool is_whole) {
  if (is_whole) return can_finish(after) ? Truth::kTrue : Truth::kFalse;
  if (is_sure(after, open_link)) return Truth::kTrue;
  if (!can_meet(after)) return Truth::kFalse;
  return after[0] == kObject && ObjectSearch(*this, after, nullptr, open_link).run() ? Truth::kTrue : Truth::kUnknown;
}

// The links to goals that `met` leaves open.
SchemaMachine::Words SchemaMachine::open_links(const Words& link, const Outcome& met) {
  Words open = link;
  for (uint32_t& goal : open) {
    if (goal != 0 && met[goal - 1] != Truth::kUnknown) goal = 0;
  }
  return open;
}

// `child` without the values after which `frame` cannot become complete. UINT32_MAX if none is left. frame: with the
// member that begins.
uint32_t SchemaMachine::only_finishing(const Words& frame, uint32_t child, const Words& link) {
  return keep_outcomes(child, [&](const Outcome& met, bool is_whole) {
    Words after = frame;
    note_member(after, link, met);
    return judge(after, open_links(link, met), is_whole);
  });
}

// The same for items.
uint32_t SchemaMachine::only_finishing_items(const Words& frame, uint32_t child, const Words& link,
                                             const Words& contains) {
  if (arrays_[frame[kArrayPlan]]->is_unique) return only_finishing_values(frame, child, link, contains);
  return keep_outcomes(child, [&](const Outcome& met, bool is_whole) {
    Words after = frame, open = open_links(link, met);
    note_item(after, link, contains, met);
    const Words open_contains = open_links(contains, met);
    for (size_t r = 0; r < open.size(); ++r) open[r] = std::max(open[r], open_contains[r]);
    return judge(after, open, is_whole);
  });
}

// `child` without the values that a later item must have, in an array whose items must differ.
uint32_t SchemaMachine::without_later_values(const Words& frame, uint32_t child, const Words& link,
                                             const Words& contains) {
  const ArrayPlan& plan = *arrays_[frame[kArrayPlan]];
  if (can_end(frame)) return child;  // no later item is needed, whatever this item is
  Words barred;
  const size_t n_later = std::min(n_needed(plan, frame), kMaxOtherValues);
  const auto try_values = [&](SchemaId schema) {
    const uint32_t later = value_plan({schema_formula(schema)}, formulas_.leaf(0));
    Words values;
    while (values.size() <= n_later) {
      const auto text = example_of(with_values(later, values, false));
      if (!text) break;
      values.push_back(canonical(*text));
    }
    if (values.size() > n_later) return;  // the later items find others
    for (const uint32_t value : values) {
      const bool is_dead = each_outcome(with_values(child, {&value, 1}, true), [&](const Outcome& met, bool is_whole) {
        if (!is_whole) return Visit::kSplit;
        Words after = frame;
        note_item(after, link, contains, met);
        note_value(after, value);
        return can_finish(std::move(after)) ? Visit::kSkip : Visit::kStop;
      });
      if (is_dead && std::ranges::find(barred, value) == barred.end()) barred.push_back(value);
    }
  };
  for (const int number : plan.rules) {
    const ArrayRule rule = table_->arrays[number];
    for (size_t i = frame[kArrayCount]; i < rule.prefix.size(); ++i) try_values(rule.prefix[i]);
    if (rule.rest != kAnySchema) try_values(rule.rest);
    if (rule.min_contains > 0) try_values(rule.contains);
  }
  return barred.empty() ? child : with_values(child, barred, false);
}

// The same for items that must differ from all others, or of which one must repeat another.
uint32_t SchemaMachine::only_finishing_values(const Words& frame, uint32_t child, const Words& link,
                                              const Words& contains) {
  const bool differs = must_differ(*arrays_[frame[kArrayPlan]], frame);
  const Words seen = seen_values(frame);
  const auto finishes = [&](uint32_t plan, const Outcome& met) {
    Words after = frame;
    note_item(after, link, contains, met);
    if (can_end(after)) return Truth::kTrue;
    const auto text = example_of(with_values(with_outcome(plan, met), seen, false));
    if (!text) return Truth::kFalse;
    note_value(after, canonical(*text));
    return can_finish(std::move(after)) ? Truth::kTrue : Truth::kFalse;
  };
  if (differs) {  // the words of scalars leave out the other items (without_seen)
    Words structures = seen;
    std::erase_if(structures, [&](uint32_t item) { return !is_structure(canonical_texts_[item]); });
    const bool is_scalar = structures.empty() || !(can_be(child, JsonType::kArray) || can_be(child, JsonType::kObject));
    if (!is_scalar) child = with_values(child, structures, false);
    child = without_later_values(frame, child, link, contains);
    return keep_outcomes(child, [&](const Outcome& met, bool is_whole) {
      if (!is_whole) return Truth::kUnknown;
      return has_unseen(with_outcome(child, met), frame) ? finishes(child, met) : Truth::kFalse;
    });
  }
  std::vector<Formula> goals = values_[child].goals;
  const Formula repeats = equals_any(goals, seen);
  const uint32_t either = seen.empty() ? child : value_plan(std::move(goals), values_[child].need);
  const uint32_t kept = keep_outcomes(either, [&](const Outcome& met, bool is_whole) {
    if (!is_whole) return Truth::kUnknown;
    if (formulas_.evaluate(repeats, [&](uint32_t goal) { return met[goal]; }) != Truth::kTrue)
      return finishes(either, met);
    Words after = frame;
    note_item(after, link, contains, met);
    note_value(after, 0);
    return can_finish(std::move(after)) ? Truth::kTrue : Truth::kFalse;
  });
  return kept == either ? child : kept;
}

}  // namespace ingot
