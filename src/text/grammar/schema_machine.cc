// Long because the machine is one: what is asked of a value, frames, words and steps share their layouts.
#include "text/grammar/schema_machine.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "text/grammar/numbers.h"

namespace ingot {

namespace {

// The kinds of frames, and where each keeps what.
enum FrameKind : uint32_t { kSlot, kObject, kArray };
enum SlotWord { kSlotParent = 1, kSlotPlan, kSlotText, kSlotLink };
enum ObjectWord { kObjectSlot = 1, kObjectPlan, kObjectCount, kObjectOrder, kObjectText, kNameText, kObjectBits };
enum ArrayWord { kArraySlot = 1, kArrayPlan, kArrayCount, kArrayText, kArrayBits };

// The kinds of words, and where each keeps what.
enum WordKind : uint32_t { kBare, kString, kName };
enum WordWord { kEscapeLow = 1, kEscapeHigh, kAnyAscii, kAlive, kGoals };   // kBare, kString: goal, language, ...
enum NameWord { kNameSet = 3, kNameNode, kOthers, kPatterns };             // the node + 1, or 0: off the tree

constexpr uint32_t kFirstText = 1;
constexpr uint32_t kUnmade = UINT32_MAX;
constexpr size_t kRowWork = 8;  // of a row, in parts of expressions

// The bytes that stand between words, or begin one.
constexpr std::array<bool, 256> kBetween = [] {
  std::array<bool, 256> table{};
  for (char c : std::string_view(" \n\t\"{}[],:-0123456789tfn")) table[static_cast<uint8_t>(c)] = true;
  return table;
}();

bool has_bit(std::span<const uint32_t> words, uint32_t i) { return (words[i / 32] >> (i % 32)) & 1; }
void set_bit(std::span<uint32_t> words, uint32_t i) { words[i / 32] |= 1u << (i % 32); }
size_t n_words(size_t n_bits) { return (n_bits + 31) / 32; }

Escape escape_of(std::span<const uint32_t> word) { return Escape::of(word[kEscapeLow] | uint64_t{word[kEscapeHigh]} << 32); }
void set_escape(std::span<uint32_t> word, Escape escape) {
  word[kEscapeLow] = static_cast<uint32_t>(escape.number());
  word[kEscapeHigh] = static_cast<uint32_t>(escape.number() >> 32);
}

}  // namespace

SchemaMachine::SchemaMachine(std::unique_ptr<SchemaTable> table, MachineOptions options)
    : table_(std::move(table)), options_(options), l_(table_->languages), f_(table_->formulas) {
  frames_.intern({});
  const uint32_t plan = value_plan({f_.leaf(table_->root)}, f_.leaf(0));
  if (!is_possible(plan)) throw Error("the schema allows no value at all");
  const uint32_t slot[] = {kSlot, 0, plan, 0};
  root_slot_ = frames_.intern(slot);
}

size_t SchemaMachine::n_bytes() const {
  constexpr size_t kEntry = 64;  // of a hash table, about
  size_t n = l_.n_bytes() + frames_.n_bytes() + words_.n_bytes() + value_index_.n_bytes() + values_.size() * sizeof(ValuePlan) +
             (steps_.size() + typed_.size() + typed_languages_.size() + set_of_frame_.size() + 2 * texts_.size()) * kEntry;
  n += n_rows_ * 256 * sizeof(uint32_t);
  for (const auto& set : name_sets_) n += sizeof(NameSet) + set->below.size() * 2 * sizeof(uint32_t);
  return n;
}

GrammarState SchemaMachine::start() { return {kValue, root_slot_, 0}; }

bool SchemaMachine::accepts(GrammarState state) {
  if (!is_word(state.place)) return state.place == kDone;
  const auto word = words_[state.place - kFirstWord];
  return word[0] == kBare && frames_[state.frame][kSlotParent] == 0 && l_.has_empty(word[kAlive]);
}

// ---- Plans: what is asked of a value, type by type

uint32_t SchemaMachine::value_plan(std::vector<Formula> goals, Formula need) {
  Words key(goals.begin(), goals.end());
  key.push_back(need);
  const uint32_t id = value_index_.intern(key);
  if (id == values_.size()) {
    ValuePlan plan;
    plan.is_single = goals.size() == 1 && need == f_.leaf(0);
    plan.goals = std::move(goals);
    plan.need = need;
    plan.words.fill(UINT32_MAX);
    values_.push_back(std::move(plan));
  }
  return id;
}

SchemaMachine::Formula SchemaMachine::typed(Formula schemas, JsonType type) {
  return f_.substitute(schemas, [&](uint32_t id) { return typed_schema(id, type); });
}

SchemaMachine::Formula SchemaMachine::typed_schema(SchemaId id, JsonType type) {
  const uint64_t key = uint64_t{id} << 8 | static_cast<uint64_t>(type);
  if (const auto it = typed_.find(key); it != typed_.end()) return it->second;
  const Schema schema = table_->schemas[id];
  const int t = static_cast<int>(type);
  if (!(schema.types >> t & 1)) return typed_[key] = Formulas::kFalse;
  const bool has_own = type == JsonType::kObject   ? schema.object >= 0
                       : type == JsonType::kArray ? schema.array >= 0
                                                  : schema.languages[t] != table_->full[t];
  const Formula own = has_own ? f_.leaf(id) : Formulas::kTrue;
  const Formula objects = type == JsonType::kObject ? typed(schema.objects, type) : Formulas::kTrue;
  return typed_[key] = f_.all({own, typed(schema.others, type), objects});
}

SchemaMachine::Language SchemaMachine::language_of(Formula id, JsonType type) {
  const Language full = table_->full[static_cast<int>(type)];
  if (id == Formulas::kTrue) return full;
  if (id == Formulas::kFalse) return RegularLanguages::kNothing;
  if (f_.kind(id) == Formulas::Kind::kLeaf) return table_->schemas[f_.number(id)].languages[static_cast<int>(type)];
  const uint64_t key = uint64_t{id} << 8 | static_cast<uint64_t>(type);
  if (const auto it = typed_languages_.find(key); it != typed_languages_.end()) return it->second;
  const Words inner(f_.parts(id).begin(), f_.parts(id).end());
  std::vector<Language> parts;
  for (Formula part : inner) parts.push_back(language_of(part, type));
  Language language = 0;
  switch (f_.kind(id)) {
    case Formulas::Kind::kNot: language = l_.all_of({full, l_.complement(parts[0])}); break;
    case Formulas::Kind::kAll: language = l_.all_of(std::move(parts)); break;
    case Formulas::Kind::kAny: language = l_.any_of(std::move(parts)); break;
    default: language = l_.all_of({full, exactly_one(l_, parts)}); break;
  }
  return typed_languages_[key] = language;
}

uint32_t SchemaMachine::first_word(uint32_t plan, JsonType type) {
  const int t = static_cast<int>(type);
  if (values_[plan].words[t] != UINT32_MAX) return values_[plan].words[t];
  const ValuePlan value = values_[plan];
  std::vector<Formula> goals;
  for (Formula goal : value.goals) goals.push_back(typed(goal, type));
  const Language alive = language_of(f_.substitute(value.need, [&](uint32_t goal) { return goals[goal]; }), type);
  const bool is_string = type == JsonType::kString;
  Words words{is_string ? kString : kBare, 0, 0, l_.char_counts(alive).first >= 0, alive};
  if (!value.is_single) {
    for (uint32_t i = 0; i < goals.size(); ++i) words.insert(words.end(), {i, language_of(goals[i], type)});
  }
  return values_[plan].words[t] = l_.is_live(alive) ? word(std::move(words)) : uint32_t{kDead};
}

template <class Plan>
void SchemaMachine::take_rules(uint32_t value, JsonType type, Plan& plan) {
  std::unordered_map<uint32_t, uint32_t> index;
  const auto rule = [&](uint32_t schema) {
    const auto [it, is_new] = index.try_emplace(schema, static_cast<uint32_t>(plan.rules.size()));
    const Schema& s = table_->schemas[schema];
    if (is_new) plan.rules.push_back(type == JsonType::kObject ? s.object : s.array);
    return f_.leaf(it->second);
  };
  const std::vector<Formula> goals = values_[value].goals;
  for (Formula goal : goals) plan.goals.push_back(f_.substitute(typed(goal, type), rule));
  plan.need = f_.substitute(values_[value].need, [&](uint32_t goal) { return plan.goals[goal]; });
}

SchemaMachine::ObjectPlan& SchemaMachine::object_plan(uint32_t value) {
  if (values_[value].object >= 0) return *objects_[values_[value].object];
  auto plan = std::make_unique<ObjectPlan>();
  take_rules(value, JsonType::kObject, *plan);
  std::unordered_map<std::string, uint32_t> index;
  const auto name_index = [&](const std::string& name) {
    const auto [it, is_new] = index.try_emplace(name, static_cast<uint32_t>(plan->names.size()));
    if (is_new) plan->names.push_back(name);
    return it->second;
  };
  const auto pattern_index = [&](Language language) {
    const auto it = std::ranges::find(plan->patterns, language);
    if (it == plan->patterns.end()) plan->patterns.push_back(language);
    return it;
  };
  for (int number : plan->rules) {
    const ObjectRule& rule = table_->objects[number];
    for (const auto& [name, schema] : rule.properties) name_index(name);
    for (const auto& [language, schema] : rule.patterns) pattern_index(language);
    if (rule.limits_names) pattern_index(rule.names);
    plan->counts |= rule.min > 0 || rule.max >= 0;
    plan->tracks_names |= rule.min > 1;  // one name cannot be counted twice
  }
  for (int number : plan->rules) {
    Words required;
    for (const std::string& name : table_->objects[number].required) required.push_back(name_index(name));
    plan->required.push_back(std::move(required));
  }
  for (int number : plan->rules) {
    Words& schemas = plan->schemas.emplace_back(plan->names.size(), UINT32_MAX);
    for (const auto& [name, schema] : table_->objects[number].properties) schemas[index[name]] = schema;
  }
  for (const std::string& name : plan->names) {
    plan->is_ascii &= std::ranges::none_of(name, [](char c) { return uint8_t(c) < 0x20 || uint8_t(c) > 0x7e || c == '"' || c == '\\'; });
    std::vector<bool>& matched = plan->name_matches.emplace_back();
    for (Language pattern : plan->patterns) {
      for (char c : name) pattern = l_.derive(pattern, static_cast<uint8_t>(c));
      matched.push_back(l_.has_empty(pattern));
    }
  }
  plan->child.assign(plan->names.size(), -1);
  name_tree(*plan);
  values_[value].object = static_cast<int>(objects_.size());
  objects_.push_back(std::move(plan));
  return *objects_.back();
}

void SchemaMachine::name_tree(ObjectPlan& plan) {
  plan.sorted.resize(plan.names.size());
  plan.node_of.resize(plan.names.size());
  for (uint32_t i = 0; i < plan.names.size(); ++i) plan.sorted[i] = i;
  std::ranges::sort(plan.sorted, {}, [&](uint32_t name) -> const std::string& { return plan.names[name]; });
  plan.nodes.emplace_back();
  plan.nodes[0].last = static_cast<uint32_t>(plan.sorted.size());
  for (uint32_t i = 0; i < plan.sorted.size(); ++i) {
    uint32_t at = 0;
    for (char c : plan.names[plan.sorted[i]]) {
      const auto [it, is_new] = plan.nodes[at].next.try_emplace(static_cast<uint8_t>(c), static_cast<uint32_t>(plan.nodes.size()));
      const uint32_t next = it->second;
      if (is_new) {
        plan.nodes.emplace_back();
        plan.nodes.back().first = i;
        plan.nodes.back().depth = plan.nodes[at].depth + 1;
      }
      plan.nodes[next].last = i + 1;
      at = next;
    }
    plan.nodes[at].name = static_cast<int>(plan.sorted[i]);
    plan.node_of[plan.sorted[i]] = at;
  }
}

SchemaMachine::ArrayPlan& SchemaMachine::array_plan(uint32_t value) {
  if (values_[value].array >= 0) return *arrays_[values_[value].array];
  auto plan = std::make_unique<ArrayPlan>();
  take_rules(value, JsonType::kArray, *plan);
  for (int number : plan->rules) {
    const ArrayRule& rule = table_->arrays[number];
    const int most = std::max({rule.min, rule.max, static_cast<int>(rule.prefix.size())}) + 1;
    plan->most = std::max(plan->most, static_cast<uint32_t>(most));
    plan->is_unique |= rule.is_unique;
  }
  values_[value].array = static_cast<int>(arrays_.size());
  arrays_.push_back(std::move(plan));
  return *arrays_.back();
}

bool SchemaMachine::is_possible(uint32_t plan) {
  if (values_[plan].is_possible < 0) {
    values_[plan].is_possible = 1;  // while it is found out: a value may hold itself where that is optional
    const bool found = find_possible(plan);
    values_[plan].is_possible = found;
  }
  return values_[plan].is_possible != 0;
}

bool SchemaMachine::find_possible(uint32_t plan) {
  if (values_[plan].need == Formulas::kFalse) return false;
  for (int t = 0; t < kScalarTypes; ++t) {
    if (first_word(plan, static_cast<JsonType>(t)) != kDead) return true;
  }
  const auto child = [&](Formula formula) { return is_possible(value_plan({formula}, f_.leaf(0))); };
  const ArrayPlan& array = array_plan(plan);
  const Truth items = f_.evaluate(array.need, [&](uint32_t r) {
    const ArrayRule& rule = table_->arrays[array.rules[r]];
    if (rule.max >= 0 && rule.min > rule.max) return Truth::kFalse;
    for (int i = 0; i < std::min<int>(rule.min, static_cast<int>(rule.prefix.size()) + 1); ++i) {
      const SchemaId item = i < static_cast<int>(rule.prefix.size()) ? rule.prefix[i] : rule.rest;
      if (item != kAnySchema && !child(f_.leaf(item))) return Truth::kFalse;
    }
    return Truth::kUnknown;
  });
  if (items != Truth::kFalse) return true;
  const ObjectPlan& object = object_plan(plan);
  return Truth::kFalse != f_.evaluate(object.need, [&](uint32_t r) {
    const ObjectRule& rule = table_->objects[object.rules[r]];
    if (rule.max >= 0 && std::max<int>(rule.min, static_cast<int>(rule.required.size())) > rule.max) return Truth::kFalse;
    for (uint32_t name : object.required[r]) {
      const Formula formula = member_formula(object, r, static_cast<int>(name), object.name_matches[name]);
      if (formula != Formulas::kTrue && !child(formula)) return Truth::kFalse;
    }
    return Truth::kUnknown;
  });
}

// ---- Members and items: the goals of what stands in an object or array

SchemaMachine::Formula SchemaMachine::member_formula(const ObjectPlan& plan, uint32_t r, int name, const std::vector<bool>& matched) {
  const ObjectRule& rule = table_->objects[plan.rules[r]];
  const auto is_matched = [&](Language language) {
    return matched[static_cast<size_t>(std::ranges::find(plan.patterns, language) - plan.patterns.begin())];
  };
  if (rule.limits_names && !is_matched(rule.names)) return Formulas::kFalse;
  std::vector<Formula> parts;
  const auto add = [&](SchemaId id) {
    parts.push_back(id == kAnySchema ? Formulas::kTrue : id == kNoSchema ? Formulas::kFalse : f_.leaf(id));
  };
  if (name >= 0 && plan.schemas[r][name] != UINT32_MAX) add(plan.schemas[r][name]);
  for (const auto& [language, schema] : rule.patterns) {
    if (is_matched(language)) add(schema);
  }
  if (parts.empty()) add(rule.additional);
  return f_.all(std::move(parts));
}

// What a member has to meet so that `need` may still hold. per_rule: its goal by each rule. A rule that is broken
// (`now` is kFalse) is out; one that can fail later need not fail by this member.
uint32_t SchemaMachine::child_plan(Formula need, const std::vector<Formula>& per_rule, const std::vector<bool>& can_fail_later,
                                   const std::vector<Truth>& now, std::vector<Formula> goals, Words& link) {
  for (size_t r = 0; r < per_rule.size(); ++r) {
    link.push_back(0);
    if (now[r] == Truth::kFalse || per_rule[r] == Formulas::kTrue) continue;
    const auto it = std::ranges::find(goals, per_rule[r]);
    link.back() = static_cast<uint32_t>(it - goals.begin()) + 1;
    if (it == goals.end()) goals.push_back(per_rule[r]);
  }
  const auto form = [&](auto& self, Formula id, bool is_positive) -> Formula {
    switch (f_.kind(id)) {
      case Formulas::Kind::kFalse:
      case Formulas::Kind::kTrue: return (id == Formulas::kTrue) == is_positive ? Formulas::kTrue : Formulas::kFalse;
      case Formulas::Kind::kLeaf: {
        const uint32_t r = f_.number(id);
        if (now[r] == Truth::kFalse) return is_positive ? Formulas::kFalse : Formulas::kTrue;
        const Formula goal = link[r] ? f_.leaf(link[r] - 1) : Formulas::kTrue;
        if (is_positive) return goal;
        if (now[r] == Truth::kTrue) return Formulas::kFalse;
        return can_fail_later[r] ? Formulas::kTrue : f_.negation(goal);
      }
      case Formulas::Kind::kNot: return self(self, f_.parts(id)[0], !is_positive);
      case Formulas::Kind::kOne: {
        if (!is_positive) return Formulas::kTrue;
        const Words parts(f_.parts(id).begin(), f_.parts(id).end());
        std::vector<Formula> choices;
        for (size_t i = 0; i < parts.size(); ++i) {
          std::vector<Formula> all{self(self, parts[i], true)};
          for (size_t j = 0; j < parts.size() && all[0] != Formulas::kFalse; ++j) {
            if (j != i) all.push_back(self(self, parts[j], false));
          }
          choices.push_back(f_.all(std::move(all)));
        }
        return f_.any(std::move(choices));
      }
      default: {
        const Words parts(f_.parts(id).begin(), f_.parts(id).end());
        std::vector<Formula> next;
        for (Formula part : parts) next.push_back(self(self, part, is_positive));
        return (f_.kind(id) == Formulas::Kind::kAll) == is_positive ? f_.all(std::move(next)) : f_.any(std::move(next));
      }
    }
  };
  return value_plan(std::move(goals), form(form, need, true));
}

Truth SchemaMachine::object_truth(const ObjectPlan& plan, std::span<const uint32_t> frame, uint32_t r, bool is_final) const {
  const auto broken = frame.subspan(kObjectBits), seen = broken.subspan(n_words(plan.rules.size()));
  if (has_bit(broken, r)) return Truth::kFalse;
  const ObjectRule& rule = table_->objects[plan.rules[r]];
  const bool is_complete = static_cast<int>(frame[kObjectCount]) >= rule.min &&
                           std::ranges::all_of(plan.required[r], [&](uint32_t name) { return has_bit(seen, name); });
  if (is_complete && (is_final || rule.is_presence_only())) return Truth::kTrue;
  return is_final ? Truth::kFalse : Truth::kUnknown;
}

Truth SchemaMachine::array_truth(const ArrayPlan& plan, std::span<const uint32_t> frame, uint32_t r, bool is_final) const {
  const auto broken = frame.subspan(kArrayBits), counts = broken.subspan(n_words(plan.rules.size()));
  if (has_bit(broken, r)) return Truth::kFalse;
  const ArrayRule& rule = table_->arrays[plan.rules[r]];
  if (!is_final) return Truth::kUnknown;
  const bool is_complete = static_cast<int>(frame[kArrayCount]) >= rule.min && static_cast<int>(counts[r]) >= rule.min_contains;
  return is_complete ? Truth::kTrue : Truth::kFalse;
}

bool SchemaMachine::can_meet(uint32_t frame) {
  const auto words = frames_[frame];
  if (words[0] == kObject) {
    const ObjectPlan& plan = *objects_[words[kObjectPlan]];
    return f_.evaluate(plan.need, [&](uint32_t r) { return object_truth(plan, words, r, false); }) != Truth::kFalse;
  }
  const ArrayPlan& plan = *arrays_[words[kArrayPlan]];
  return f_.evaluate(plan.need, [&](uint32_t r) { return array_truth(plan, words, r, false); }) != Truth::kFalse;
}

// The object with the member `name` (-1: one that no rule names) begun, and the plan of the member's value; UINT32_MAX
// where the member may not be there.
uint32_t SchemaMachine::plan_member(Words& frame, int name, const std::vector<bool>& matched, Words& link) {
  const ObjectPlan& plan = *objects_[frame[kObjectPlan]];
  const size_t n_rules = plan.rules.size();
  const std::span<uint32_t> broken(frame.data() + kObjectBits, n_words(n_rules));
  const std::span<uint32_t> seen(frame.data() + kObjectBits + broken.size(), n_words(plan.names.size()));
  if (name >= 0) set_bit(seen, static_cast<uint32_t>(name));
  if (plan.counts) frame[kObjectCount] = std::min<uint32_t>(frame[kObjectCount] + 1, 1u << 30);
  const uint32_t order = name >= 0 ? static_cast<uint32_t>(name) : static_cast<uint32_t>(plan.names.size());
  if (!options_.any_order) frame[kObjectOrder] = order + (name >= 0);
  std::vector<Formula> per_rule(n_rules, Formulas::kTrue);
  std::vector<bool> can_fail_later(n_rules, true);
  std::vector<Truth> now(n_rules, Truth::kFalse);
  for (uint32_t r = 0; r < n_rules; ++r) {
    if (has_bit(broken, r)) continue;
    const ObjectRule& rule = table_->objects[plan.rules[r]];
    per_rule[r] = member_formula(plan, r, name, matched);
    const bool is_skipped = !options_.any_order && std::ranges::any_of(plan.required[r], [&](uint32_t other) {
      return other < order && !has_bit(seen, other);
    });
    if (is_skipped || per_rule[r] == Formulas::kFalse || (rule.max >= 0 && static_cast<int>(frame[kObjectCount]) > rule.max)) {
      set_bit(broken, r);
      continue;
    }
    now[r] = object_truth(plan, frame, r, false);
    can_fail_later[r] = !can_only_hold(plan, rule, r, frame);
  }
  const uint32_t child = child_plan(plan.need, per_rule, can_fail_later, now, {}, link);
  return is_possible(child) ? child : UINT32_MAX;
}

// Nothing that may still come can break the rule.
bool SchemaMachine::can_only_hold(const ObjectPlan& plan, const ObjectRule& rule, uint32_t r, std::span<const uint32_t> frame) const {
  if (!rule.patterns.empty() || rule.additional != kAnySchema || rule.max >= 0 || rule.limits_names) return false;
  if (static_cast<int>(frame[kObjectCount]) < rule.min) return false;
  const auto seen = frame.subspan(kObjectBits + n_words(plan.rules.size()));
  for (uint32_t name = 0; name < plan.names.size(); ++name) {
    const bool is_bound = plan.schemas[r][name] != UINT32_MAX && plan.schemas[r][name] != kAnySchema;
    if (!has_bit(seen, name) && (is_bound || std::ranges::find(plan.required[r], name) != plan.required[r].end())) return false;
  }
  return true;
}

uint32_t SchemaMachine::enter_member(uint32_t frame, int name, const std::vector<bool>& matched, uint32_t text) {
  Words words = frames_.copy(frame), link;
  l_.spend(words.size());
  const uint32_t child = plan_member(words, name, matched, link);
  if (child == UINT32_MAX) return 0;
  const uint32_t parent = frames_.intern(words);
  Words slot{kSlot, parent, child, text};
  slot.insert(slot.end(), link.begin(), link.end());
  return frames_.intern(slot);
}

uint32_t SchemaMachine::enter_item(uint32_t frame, uint32_t text) {
  Words words = frames_.copy(frame), link;
  const ArrayPlan& plan = *arrays_[words[kArrayPlan]];
  const size_t n_rules = plan.rules.size();
  const std::span<uint32_t> broken(words.data() + kArrayBits, n_words(n_rules));
  const std::span<uint32_t> counts(words.data() + kArrayBits + broken.size(), n_rules);
  const int n = static_cast<int>(words[kArrayCount]);  // before this item
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
    std::vector<Formula> parts{item == kAnySchema ? Formulas::kTrue : f_.leaf(item)};
    const bool counts_items = rule.min_contains > 0 || rule.max_contains >= 0;
    if (counts_items) contained[r] = f_.leaf(rule.contains);
    if (rule.max >= 0 && rule.max - n <= rule.min_contains - static_cast<int>(counts[r])) parts.push_back(contained[r]);
    if (rule.max_contains >= 0 && static_cast<int>(counts[r]) >= rule.max_contains) parts.push_back(f_.negation(contained[r]));
    per_rule[r] = f_.all(std::move(parts));
    if (per_rule[r] == Formulas::kFalse) set_bit(broken, r);
    if (!has_bit(broken, r)) now[r] = Truth::kUnknown;
    can_fail_later[r] = n + 1 < static_cast<int>(rule.prefix.size()) || rule.rest != kAnySchema || rule.max >= 0 ||
                        rule.is_unique || counts_items || n + 1 < rule.min;
  }
  std::vector<Formula> goals;
  Words contains_link;
  for (uint32_t r = 0; r < n_rules; ++r) {
    contains_link.push_back(0);
    if (now[r] == Truth::kFalse || contained[r] == Formulas::kTrue) continue;
    goals.push_back(contained[r]);
    contains_link.back() = static_cast<uint32_t>(goals.size());
  }
  const uint32_t child = child_plan(plan.need, per_rule, can_fail_later, now, std::move(goals), link);
  const uint32_t parent = frames_.intern(words);
  if (!is_possible(child) || !has_unseen(child, parent)) return 0;
  Words slot{kSlot, parent, child, text};
  slot.insert(slot.end(), link.begin(), link.end());
  slot.insert(slot.end(), contains_link.begin(), contains_link.end());
  return frames_.intern(slot);
}

// The items of an array whose items have to differ, as canonical() writes them; none of any other frame.
std::vector<std::string> SchemaMachine::seen_items(uint32_t frame) const {
  const auto words = frames_[frame];
  if (words.empty() || words[0] != kArray) return {};
  const ArrayPlan& plan = *arrays_[words[kArrayPlan]];
  const bool must_differ = f_.evaluate(plan.need, [&](uint32_t r) {
    return table_->arrays[plan.rules[r]].is_unique ? Truth::kFalse : Truth::kUnknown;
  }) == Truth::kFalse;
  std::vector<std::string> seen;
  for (size_t i = kArrayBits + n_words(plan.rules.size()) + plan.rules.size(); must_differ && i < words.size(); ++i) {
    seen.push_back(canonical_texts_[words[i]]);
  }
  return seen;
}

// The word at `place`, but for the texts that would repeat an item of `frame`. A string of any characters can always be
// another one, so it stays as it is.
uint32_t SchemaMachine::without_seen(uint32_t place, uint32_t frame) {
  if (place == kDead) return kDead;
  Words word = words_.copy(place - kFirstWord);
  std::vector<Language> barred;
  for (const std::string& item : seen_items(frame)) {
    if ((item[0] == '"') != (word[0] == kString)) continue;
    const std::optional<Decimal> number = item[0] == '-' || isdigit(item[0]) ? Decimal::parse(item) : std::nullopt;
    if (word[0] == kString) {
      barred.push_back(l_.literal(string_of(item)));
    } else if (item[0] != '{' && item[0] != '[') {
      barred.push_back(number ? number_literal(l_, *number) : l_.literal(item));
    }
  }
  if (barred.empty() || word[kAnyAscii] != 0) return place;
  word[kAlive] = l_.all_of({word[kAlive], l_.complement(l_.any_of(std::move(barred)))});
  return l_.is_live(word[kAlive]) ? this->word(std::move(word)) : uint32_t{kDead};
}

// Some value of the plan is not among the items.
bool SchemaMachine::has_unseen(uint32_t plan, uint32_t frame) {
  if (seen_items(frame).empty()) return true;
  for (int t = 0; t < kScalarTypes; ++t) {
    if (without_seen(first_word(plan, static_cast<JsonType>(t)), frame) != kDead) return true;
  }
  return object_plan(plan).need != Formulas::kFalse || array_plan(plan).need != Formulas::kFalse;
}

// ---- Values: how they begin and end

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

// met: of each goal of the slot's plan, whether the value meets it.
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
    if (plan.is_unique) {
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

// ---- Names of members

// Which names may come next in an object.
const SchemaMachine::NameSet& SchemaMachine::name_set(uint32_t frame) { return *name_sets_[name_set_id(frame)]; }

uint32_t SchemaMachine::name_set_id(uint32_t frame) {
  if (const auto it = set_of_frame_.find(frame); it != set_of_frame_.end()) return it->second;
  const Words words = frames_.copy(frame);
  ObjectPlan& plan = *objects_[words[kObjectPlan]];
  auto set = std::make_unique<NameSet>();
  set->plan = words[kObjectPlan];
  set->allowed.resize(plan.names.size());
  for (uint32_t name = 0; name < plan.names.size(); ++name) set->allowed[name] = allows_name(plan, words, name);
  set->others = other_names(plan, words);
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
  const std::span<const uint32_t> seen(frame.data() + kObjectBits + n_words(plan.rules.size()), n_words(plan.names.size()));
  if (has_bit(seen, name) || (!options_.any_order && name < frame[kObjectOrder])) return false;
  const bool is_plain = plan.rules.size() == 1 && plan.need == f_.leaf(0);
  if (is_plain) {  // one rule, which has to hold: what a name needs is known from the first
    const ObjectRule& rule = table_->objects[plan.rules[0]];
    if (rule.max >= 0 && static_cast<int>(frame[kObjectCount]) >= rule.max) return false;
    if (!options_.any_order && std::ranges::any_of(plan.required[0], [&](uint32_t other) { return other < name && !has_bit(seen, other); })) {
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

// The names that no rule names, and that leave a choice of rules.
SchemaMachine::Language SchemaMachine::other_names(const ObjectPlan& plan, std::span<const uint32_t> frame) {
  const auto seen = frame.subspan(kObjectBits + n_words(plan.rules.size()));
  std::vector<Language> per_rule;
  for (uint32_t r = 0; r < plan.rules.size(); ++r) {
    const ObjectRule& rule = table_->objects[plan.rules[r]];
    const bool is_out = object_truth(plan, frame, r, false) == Truth::kFalse ||
                        (rule.max >= 0 && static_cast<int>(frame[kObjectCount]) >= rule.max) ||
                        (!options_.any_order && std::ranges::any_of(plan.required[r], [&](uint32_t name) { return !has_bit(seen, name); }));
    const auto can_be = [&](SchemaId id) { return id == kAnySchema || (id != kNoSchema && is_possible(value_plan({f_.leaf(id)}, f_.leaf(0)))); };
    std::vector<Language> patterns, barred;
    for (const auto& [language, schema] : rule.patterns) (can_be(schema) ? patterns : barred).push_back(language);
    Language names = can_be(rule.additional) ? l_.any_text() : l_.any_of(std::move(patterns));
    if (!barred.empty()) names = l_.all_of({names, l_.complement(l_.any_of(std::move(barred)))});
    per_rule.push_back(is_out ? RegularLanguages::kNothing : rule.limits_names ? l_.all_of({names, rule.names}) : names);
  }
  const Language names = fold_names(plan, plan.need, per_rule, true);
  return l_.is_live(names) ? names : RegularLanguages::kNothing;
}

SchemaMachine::Language SchemaMachine::fold_names(const ObjectPlan& plan, Formula id, const std::vector<Language>& names, bool is_positive) {
  switch (f_.kind(id)) {
    case Formulas::Kind::kFalse:
    case Formulas::Kind::kTrue: return (id == Formulas::kTrue) == is_positive ? l_.any_text() : RegularLanguages::kNothing;
    case Formulas::Kind::kLeaf: return is_positive ? names[f_.number(id)] : l_.any_text();
    case Formulas::Kind::kNot: return fold_names(plan, f_.parts(id)[0], names, !is_positive);
    default: break;
  }
  const Words parts(f_.parts(id).begin(), f_.parts(id).end());
  std::vector<Language> next;
  for (Formula part : parts) next.push_back(fold_names(plan, part, names, is_positive));
  const bool is_all = (f_.kind(id) == Formulas::Kind::kAll) == is_positive && f_.kind(id) != Formulas::Kind::kOne;
  if (is_all && std::ranges::find(next, l_.any_text()) != next.end() && next.size() > 1) std::erase(next, l_.any_text());
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
    if (name < 0) {
      const uint32_t text = canonical("\"" + text_between(words[kNameText], state.text));
      const auto names = words.begin() + static_cast<ptrdiff_t>(kObjectBits + n_words(plan.rules.size()) + n_words(plan.names.size()));
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

// ---- Words

const std::array<uint32_t, 256>& SchemaMachine::word_row(uint32_t place) {
  const uint32_t id = place - kFirstWord;
  if (id >= rows_.size()) rows_.resize(id + 1);
  if (!rows_[id]) {
    auto made = make_row(words_.copy(id));
    if (id >= rows_.size()) rows_.resize(id + 1);
    rows_[id] = std::move(made);
    ++n_rows_;
  }
  return *rows_[id];
}

// Bytes that lead every language of the word to the same place lead the word there: few of 256 are looked at closely.
std::unique_ptr<std::array<uint32_t, 256>> SchemaMachine::make_row(const Words& word) {
  l_.spend(kRowWork);
  auto row = std::make_unique<std::array<uint32_t, 256>>();
  if (word[0] != kBare && escape_of(word).phase != Escape::kNone) {
    for (size_t byte = 0; byte < 256; ++byte) (*row)[byte] = next_word(word, static_cast<uint8_t>(byte));
    return row;
  }
  const ByteGroups groups = groups_of(word);
  std::vector<uint32_t> next(groups.n, kUnmade);
  for (size_t byte = 0; byte < 256; ++byte) {
    const auto b = static_cast<uint8_t>(byte);
    if (word[0] != kBare && b < 0x20) continue;  // a control character: kDead
    if (word[0] != kBare && (b == '"' || b == '\\')) {
      (*row)[byte] = next_word(word, b);
      continue;
    }
    uint32_t& place = next[groups.of[byte]];
    if (place == kUnmade) place = next_word(word, b);
    (*row)[byte] = place;
  }
  return row;
}

SchemaMachine::ByteGroups SchemaMachine::groups_of(const Words& word) {
  ByteGroups groups;
  std::vector<std::pair<uint64_t, uint8_t>> names;
  const auto divide = [&](const auto& value_of) {
    names.clear();
    uint64_t before = UINT64_MAX;
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint64_t key = uint64_t{value_of(byte)} << 8 | groups.of[byte];
      if (key == before) {
        groups.of[byte] = groups.of[byte - 1];
        continue;
      }
      before = key;
      auto it = std::ranges::find(names, key, &std::pair<uint64_t, uint8_t>::first);
      if (it == names.end()) it = names.insert(it, {key, static_cast<uint8_t>(names.size())});
      groups.of[byte] = it->second;
    }
    groups.n = names.size();
  };
  const auto divide_by = [&](Language language) {
    const std::array<Language, 256>& next = l_.row(language);
    divide([&](size_t byte) { return next[byte]; });
  };
  if (word[0] == kName) {
    for (size_t k = kOthers; k < word.size(); ++k) divide_by(word[k]);
    const NameSet& set = *name_sets_[word[kNameSet]];
    if (word[kNameNode] != 0) divide([&](size_t byte) { return next_node(set, word[kNameNode], static_cast<uint8_t>(byte)); });
  } else {
    divide_by(word[kAlive]);
    for (size_t k = kGoals + 1; k < word.size(); k += 2) divide_by(word[k]);
  }
  return groups;
}

uint32_t SchemaMachine::next_word(const Words& word, uint8_t byte) {
  if (word[0] == kBare) {
    const uint32_t next = advance(word, &byte, 1);
    return next == kDead && l_.has_empty(word[kAlive]) ? kWordOver : next;
  }
  const Escape escape = escape_of(word);
  const bool is_name = word[0] == kName;
  const NameSet* set = is_name ? name_sets_[word[kNameSet]].get() : nullptr;
  if (byte == '"' && escape.phase == Escape::kNone) {
    if (!is_name) return l_.has_empty(word[kAlive]) ? kWordEnds : kDead;
    const int name = word[kNameNode] == 0 ? -1 : objects_[set->plan]->nodes[word[kNameNode] - 1].name;
    return (name >= 0 ? set->allowed[static_cast<size_t>(name)] : l_.has_empty(word[kOthers])) ? kWordEnds : kDead;
  }
  const EscapeStep step = step_escape(escape, byte);
  const bool any_ascii = is_name ? set->is_free : word[kAnyAscii] != 0;
  if (step.kind == EscapeStep::kBad) return kDead;
  Words next = word;
  set_escape(next, step.next);
  if (step.kind == EscapeStep::kBytes) {
    return any_ascii || may_spell(escape, byte, step) ? advance(std::move(next), step.bytes, step.n) : uint32_t{kDead};
  }
  const ByteStep language = [&](uint32_t id, uint8_t b) { return l_.row(id)[b]; };
  bool can_go_on = can_complete(language, word[is_name ? int{kOthers} : int{kAlive}], step.next, any_ascii);
  if (!can_go_on && is_name && word[kNameNode] != 0) {
    can_go_on = can_complete([&](uint32_t node, uint8_t b) { return next_node(*set, node, b); }, word[kNameNode], step.next, any_ascii);
  }
  return can_go_on ? this->word(std::move(next)) : uint32_t{kDead};
}

// The node + 1 after a byte, where an allowed name is below it; else 0.
uint32_t SchemaMachine::next_node(const NameSet& set, uint32_t node, uint8_t byte) const {
  if (node == 0) return 0;
  const ObjectPlan& plan = *objects_[set.plan];
  const auto it = plan.nodes[node - 1].next.find(byte);
  return it == plan.nodes[node - 1].next.end() ? 0 : it->second + 1;
}

uint32_t SchemaMachine::advance(Words word, const uint8_t* bytes, int n) {
  const bool is_name = word[0] == kName;
  for (int i = 0; i < n; ++i) {
    if (is_name) {
      for (size_t k = kOthers; k < word.size(); ++k) word[k] = l_.row(word[k])[bytes[i]];
      word[kNameNode] = next_node(*name_sets_[word[kNameSet]], word[kNameNode], bytes[i]);
    } else {
      word[kAlive] = l_.row(word[kAlive])[bytes[i]];
      for (size_t k = kGoals + 1; k < word.size(); k += 2) word[k] = l_.row(word[k])[bytes[i]];
    }
  }
  if (is_name) {
    const NameSet& set = *name_sets_[word[kNameSet]];
    if (word[kNameNode] != 0) {
      const ObjectPlan::Node& node = objects_[set.plan]->nodes[word[kNameNode] - 1];
      if (set.below[node.last] > set.below[node.first]) return this->word(std::move(word));
    }
    return word[kOthers] != 0 ? this->word(std::move(word)) : uint32_t{kDead};
  }
  if (word[kAlive] == RegularLanguages::kNothing) return kDead;
  size_t kept = kGoals;
  for (size_t k = kGoals; k < word.size(); k += 2) {  // goals that are missed for good are left out
    if (word[k + 1] == RegularLanguages::kNothing) continue;
    word[kept] = word[k];
    word[kept + 1] = word[k + 1];
    kept += 2;
  }
  word.resize(kept);
  return this->word(std::move(word));
}

bool SchemaMachine::is_string(uint32_t place) const {
  const auto word = words_[place - kFirstWord];
  return word[0] != kBare && word[kEscapeLow] == 0 && word[kEscapeHigh] == 0;
}

bool SchemaMachine::allows_any_text(uint32_t place) const {
  const auto word = words_[place - kFirstWord];
  return is_string(place) && l_.allows_any_text(word[0] == kName ? word[kOthers] : word[kAlive]);
}

uint32_t SchemaMachine::word_outcome(uint32_t place) {
  const Words word = words_.copy(place - kFirstWord);
  Words outcome{UINT32_MAX};
  if (word[0] == kName) {
    const NameSet& set = *name_sets_[word[kNameSet]];
    outcome.push_back(word[kNameNode] == 0 ? UINT32_MAX : static_cast<uint32_t>(objects_[set.plan]->nodes[word[kNameNode] - 1].name));
    for (size_t k = kPatterns; k < word.size(); ++k) outcome.push_back(l_.has_empty(word[k]));
  } else {
    for (size_t k = kGoals; k < word.size(); k += 2) {
      if (l_.has_empty(word[k + 1])) outcome.push_back(word[k]);
    }
  }
  return words_.intern(outcome);
}

GrammarState SchemaMachine::end_word(GrammarState state) {
  const Words word = words_.copy(state.place - kFirstWord);
  if (word[0] == kName) return end_name(state);
  const ValuePlan& plan = values_[frames_[state.frame][kSlotPlan]];
  std::vector<bool> met(plan.goals.size(), plan.is_single);
  for (size_t k = kGoals; k < word.size(); k += 2) {
    if (l_.has_empty(word[k + 1])) met[word[k]] = true;
  }
  return end_value(state.frame, met, state.text);
}

std::pair<int, int> SchemaMachine::free_chars(uint32_t place) const {
  const auto word = words_[place - kFirstWord];
  if (word[0] == kBare || word[kEscapeLow] != 0 || word[kEscapeHigh] != 0) return {-1, -1};
  if (word[0] == kString) return word.size() == kGoals && word[kAnyAscii] != 0 ? l_.char_counts(word[kAlive]) : std::pair{-1, -1};
  const bool is_free = word[kOthers] == l_.any_text() && name_sets_[word[kNameSet]]->is_free;
  return is_free ? std::pair{0, RegularLanguages::kNoLimit} : std::pair{-1, -1};
}

std::vector<Automaton::KnownEnd> SchemaMachine::known_ends(uint32_t place) {
  Words word = words_.copy(place - kFirstWord);
  std::vector<KnownEnd> ends;
  if (word[0] != kName || word[kNameNode] == 0) return ends;
  const ObjectPlan& plan = *objects_[name_sets_[word[kNameSet]]->plan];
  const ObjectPlan::Node node = plan.nodes[word[kNameNode] - 1];
  for (uint32_t i = node.first; i < node.last; ++i) {
    word[kNameNode] = plan.node_of[plan.sorted[i]] + 1;
    ends.push_back({plan.names[plan.sorted[i]].substr(node.depth), this->word(word)});
  }
  return ends;
}

uint32_t SchemaMachine::free_place(uint32_t place) {
  Words word = words_.copy(place - kFirstWord);
  if (word[0] == kName) word[kNameNode] = 0;
  return this->word(std::move(word));
}

// A control byte makes the text no JSON, which nothing equals that was read.
GrammarState SchemaMachine::fresh(GrammarState state) {
  if (state.text != 0) state.text = add_text(state.text, 1);
  return state;
}

std::optional<std::vector<std::string>> SchemaMachine::repeated_ends(GrammarState state) {
  const Words word = words_.copy(state.place - kFirstWord);
  if (word[0] == kBare) return std::nullopt;
  Words known;  // canonical texts that would be repeated
  std::string text;
  if (word[0] == kName) {
    const Words frame = frames_.copy(state.frame);
    const ObjectPlan& plan = *objects_[frame[kObjectPlan]];
    if (!plan.tracks_names) return std::vector<std::string>();
    known.assign(frame.begin() + static_cast<ptrdiff_t>(kObjectBits + n_words(plan.rules.size()) + n_words(plan.names.size())), frame.end());
    text = "\"" + text_between(frame[kNameText], state.text);
  } else {
    const Words slot = frames_.copy(state.frame);
    const Words frame = frames_.copy(slot[kSlotParent]);
    if (frame.empty() || frame[0] != kArray || !arrays_[frame[kArrayPlan]]->is_unique) return std::vector<std::string>();
    const size_t n_rules = arrays_[frame[kArrayPlan]]->rules.size();
    known.assign(frame.begin() + static_cast<ptrdiff_t>(kArrayBits + n_words(n_rules) + n_rules), frame.end());
    text = text_between(slot[kSlotText], state.text);
    text.erase(0, text.find('"'));
  }
  std::vector<std::string> ends;
  for (uint32_t number : known) {
    const std::string& other = canonical_texts_[number];
    if (!other.starts_with('"')) continue;
    if (other.find('\\') != std::string::npos || text.find('\\') != std::string::npos) return std::nullopt;
    if (other.starts_with(text)) ends.push_back(other.substr(text.size(), other.size() - 1 - text.size()));
  }
  return ends;
}

// ---- Steps

GrammarState SchemaMachine::step(GrammarState state, uint8_t byte) {
  if (!is_word(state.place)) return step_between(state, byte);
  const uint32_t next = word_row(state.place)[byte];
  if (next == kDead) return {};
  if (next == kWordOver) {
    const GrammarState over = end_word(state);
    return over.is_dead() ? over : step_between(over, byte);
  }
  if (state.text != 0) state.text = add_text(state.text, byte);
  if (next == kWordEnds) return end_word(state);
  return {next, state.frame, state.text};
}

GrammarState SchemaMachine::step_between(GrammarState state, uint8_t byte) {
  if (!kBetween[byte]) return {};
  if (state.text != 0) return find_step(state, byte);
  const uint64_t key = uint64_t{state.frame} << 32 | state.place << 8 | byte;
  if (const auto it = steps_.find(key); it != steps_.end()) return it->second;
  const GrammarState next = find_step(state, byte);
  if (next.text == 0) steps_[key] = next;
  return next;
}

// White space is nothing, one space, or a line end and blanks: as people and programs write JSON, and bounded.
uint32_t SchemaMachine::add_blank(GrammarState state, uint8_t byte) {
  const uint32_t kind = state.place % kPlaceKinds, n = state.place / kPlaceKinds;
  if (options_.is_compact || kind == kColon || kind == kDone || (kind == kValue && state.frame == root_slot_)) return kPlaceDead;
  if (kind == kAfterValue) {  // then it is the end of the object or array
    const bool is_object = frames_[state.frame][0] == kObject;
    if ((is_object ? close_object(state.frame, state.text) : close_array(state.frame, state.text)).is_dead()) return kPlaceDead;
  }
  if (n == 0) return byte == ' ' ? kind + kPlaceKinds : byte == '\n' ? kind + 2 * kPlaceKinds : uint32_t{kPlaceDead};
  return n > 1 && n <= std::min(options_.max_blanks, kMaxBlanks) && byte != '\n' ? kind + (n + 1) * kPlaceKinds : uint32_t{kPlaceDead};
}

GrammarState SchemaMachine::find_step(GrammarState state, uint8_t byte) {
  const uint32_t before = state.text;
  if (state.text != 0) state.text = add_text(state.text, byte);
  if (byte == ' ' || byte == '\n' || byte == '\t') return {add_blank(state, byte), state.frame, state.text};
  const bool is_object = frames_[state.frame][0] == kObject;
  const auto begin_item = [&]() -> GrammarState {
    const Words frame = frames_.copy(state.frame);
    const bool is_unique = arrays_[frame[kArrayPlan]]->is_unique;
    const uint32_t from = !is_unique ? 0 : before == 0 ? kFirstText : before;
    const uint32_t slot = enter_item(state.frame, from);
    if (slot == 0) return {};
    return begin_value(slot, byte, is_unique && before == 0 ? add_text(from, byte) : state.text);
  };
  switch (state.place % kPlaceKinds) {
    case kValue: return begin_value(state.frame, byte, state.text);
    case kFirstItem:
      if (byte == ']') return close_array(state.frame, state.text);
      return begin_item();
    case kNextItem: return begin_item();
    case kFirstName:
      if (byte == '}') return close_object(state.frame, state.text);
      [[fallthrough]];
    case kNextName: {
      if (byte != '"') return {};
      const uint32_t place = begin_name(state.frame);
      if (place == kDead || !objects_[frames_[state.frame][kObjectPlan]]->tracks_names) return {place, state.frame, state.text};
      Words frame = frames_.copy(state.frame);
      if (state.text == 0) state.text = kFirstText;
      frame[kNameText] = state.text;
      return {place, frames_.intern(frame), state.text};
    }
    case kColon: return byte == ':' ? GrammarState{kValue, state.frame, state.text} : GrammarState{};
    case kAfterValue: {
      const bool has_blanks = state.place >= kPlaceKinds;
      if (byte == '}' && is_object) return close_object(state.frame, state.text);
      if (byte == ']' && !is_object) return close_array(state.frame, state.text);
      if (byte != ',' || has_blanks) return {};
      if (is_object) return {name_set(state.frame).any ? uint32_t{kNextName} : uint32_t{kPlaceDead}, state.frame, state.text};
      return {enter_item(state.frame, 0) != 0 ? uint32_t{kNextItem} : uint32_t{kPlaceDead}, state.frame, state.text};
    }
    default: return {};
  }
}

// ---- Texts that a rule asks for

uint32_t SchemaMachine::add_text(uint32_t text, uint8_t byte) {
  const auto [it, is_new] = text_index_.try_emplace(uint64_t{text} << 8 | byte, static_cast<uint32_t>(texts_.size()));
  if (is_new) texts_.push_back({text, byte});
  if (texts_.size() > kMaxTexts) throw Error("the items of an array that have to differ are too long");
  return it->second;
}

std::string SchemaMachine::text_between(uint32_t from, uint32_t to) const {
  std::string text;
  for (; to != from && to > kFirstText; to = texts_[to].first) text += static_cast<char>(texts_[to].second);
  std::ranges::reverse(text);
  return text;
}

std::unique_ptr<SchemaMachine> compile_schema(std::string_view json, const SchemaOptions& schema, const MachineOptions& options) {
  auto table = std::make_unique<SchemaTable>();
  table->languages.limit_work(RegularLanguages::kMaxWork);
  read_schema(json, schema, *table);
  auto machine = std::make_unique<SchemaMachine>(std::move(table), options);
  machine->limit_work(SIZE_MAX);
  return machine;
}

}  // namespace ingot
