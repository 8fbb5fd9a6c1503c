// SchemaMachine: plans, the conditions on a value of each type.
#include <algorithm>

#include "base/error.h"
#include "text/grammar/machine/layout.h"
#include "text/grammar/machine/schema_machine.h"

namespace ingot {

namespace {

constexpr size_t kMaxNameClasses = 256;  // of the names that no rule mentions

}  // namespace

uint32_t SchemaMachine::value_plan(std::vector<Formula> goals, Formula need) {
  Words key(goals.begin(), goals.end());
  key.push_back(need);
  const uint32_t id = value_index_.intern(key);
  if (id == values_.size()) {
    ValuePlan plan;
    plan.is_single = goals.size() == 1 && need == formulas_.leaf(0);
    plan.goals = std::move(goals);
    plan.need = need;
    plan.words.fill(UINT32_MAX);
    values_.push_back(std::move(plan));
  }
  return id;
}

SchemaMachine::Formula SchemaMachine::typed(Formula schemas, JsonType type) {
  return formulas_.substitute(schemas, [&](uint32_t id) { return typed_schema(id, type); });
}

SchemaMachine::Formula SchemaMachine::typed_schema(SchemaId id, JsonType type) {
  const uint64_t key = uint64_t{id} << 8 | static_cast<uint64_t>(type);
  if (const auto it = typed_.find(key); it != typed_.end()) return it->second;
  const Schema schema = table_->schemas[id];
  const int t = static_cast<int>(type);
  if (!(schema.types >> t & 1)) return typed_[key] = Formulas::kFalse;
  const bool has_own = type == JsonType::kObject  ? schema.object >= 0
                       : type == JsonType::kArray ? schema.array >= 0
                                                  : schema.languages[t] != table_->full[t];
  const Formula own = has_own ? formulas_.leaf(id) : Formulas::kTrue;
  const Formula objects = type == JsonType::kObject ? typed(schema.objects, type) : Formulas::kTrue;
  return typed_[key] = formulas_.all({own, typed(schema.others, type), objects});
}

SchemaMachine::Language SchemaMachine::language_of(Formula id, JsonType type) {
  const Language full = table_->full[static_cast<int>(type)];
  if (id == Formulas::kTrue) return full;
  if (id == Formulas::kFalse) return RegularLanguages::kNothing;
  if (formulas_.kind(id) == Formulas::Kind::kLeaf)
    return table_->schemas[formulas_.number(id)].languages[static_cast<int>(type)];
  const uint64_t key = uint64_t{id} << 8 | static_cast<uint64_t>(type);
  if (const auto it = typed_languages_.find(key); it != typed_languages_.end()) return it->second;
  const Words inner(formulas_.parts(id).begin(), formulas_.parts(id).end());
  std::vector<Language> parts;
  for (Formula part : inner) parts.push_back(language_of(part, type));
  Language language = 0;
  switch (formulas_.kind(id)) {
    case Formulas::Kind::kNot:
      language = languages_.all_of({full, languages_.complement(languages_.any_of({parts[0], unsure(id, type)}))});
      break;
    case Formulas::Kind::kAll: language = languages_.all_of(std::move(parts)); break;
    case Formulas::Kind::kAny: language = languages_.any_of(std::move(parts)); break;
    default:
      language = languages_.all_of({full, exactly_one(languages_, parts), languages_.complement(unsure(id, type))});
      break;
  }
  return typed_languages_[key] = language;
}

// The texts of which it is not known whether they meet the formula.
SchemaMachine::Language SchemaMachine::unsure(Formula id, JsonType type) {
  std::vector<Language> all;
  formulas_.each_leaf(id,
                      [&](uint32_t leaf) { all.push_back(table_->schemas[leaf].unsure[static_cast<size_t>(type)]); });
  return languages_.any_of(std::move(all));
}

uint32_t SchemaMachine::first_word(uint32_t plan, JsonType type) {
  const int t = static_cast<int>(type);
  if (values_[plan].words[t] != UINT32_MAX) return values_[plan].words[t];
  const ValuePlan value = values_[plan];
  std::vector<Formula> goals;
  for (Formula goal : value.goals) goals.push_back(typed(goal, type));
  Language alive = language_of(formulas_.substitute(value.need, [&](uint32_t goal) { return goals[goal]; }), type);
  if (!value.is_single) {  // whether a goal is met must be known
    std::vector<Language> parts{alive};
    for (Formula goal : goals) {
      if (const Language part = unsure(goal, type); part != RegularLanguages::kNothing)
        parts.push_back(languages_.complement(part));
    }
    alive = languages_.all_of(std::move(parts));
  }
  const bool is_string = type == JsonType::kString;
  Words words{is_string ? kString : kBare, 0, 0, languages_.char_counts(alive).first >= 0, alive};
  if (!value.is_single) {
    for (uint32_t i = 0; i < goals.size(); ++i) words.insert(words.end(), {i, language_of(goals[i], type)});
  }
  return values_[plan].words[t] = languages_.is_live(alive) ? word(std::move(words)) : uint32_t{kDead};
}

template <class Plan>
void SchemaMachine::take_rules(uint32_t value, JsonType type, Plan& plan) {
  std::unordered_map<uint32_t, uint32_t> index;
  const auto rule = [&](uint32_t schema) {
    const auto [it, is_new] = index.try_emplace(schema, static_cast<uint32_t>(plan.rules.size()));
    const Schema& s = table_->schemas[schema];
    if (is_new) plan.rules.push_back(type == JsonType::kObject ? s.object : s.array);
    return formulas_.leaf(it->second);
  };
  const std::vector<Formula> goals = values_[value].goals;
  for (Formula goal : goals) plan.goals.push_back(formulas_.substitute(typed(goal, type), rule));
  plan.need = formulas_.substitute(values_[value].need, [&](uint32_t goal) { return plan.goals[goal]; });
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
    plan->max_count = std::max(plan->max_count, static_cast<uint32_t>(std::max(rule.min, rule.max)) + 1);
    plan->tracks_names |= rule.min > 1;  // a repeated name must not count twice
  }
  for (int number : plan->rules) {
    Words required;
    for (const std::string& name : table_->objects[number].required) required.push_back(name_index(name));
    plan->required.push_back(std::move(required));
  }
  for (int number : plan->rules) {
    Words& schemas = plan->schemas.emplace_back(plan->names.size(), UINT32_MAX);
    Words& bound = plan->bound.emplace_back();
    for (const auto& [name, schema] : table_->objects[number].properties) {
      schemas[index[name]] = schema;
      if (schema != kAnySchema) bound.push_back(index[name]);
    }
    if (!table_->objects[number].is_presence_only())
      plan->binding.push_back(static_cast<uint32_t>(plan->bound.size() - 1));
  }
  for (const std::string& name : plan->names) {
    plan->is_ascii &= std::ranges::none_of(
        name, [](char c) { return uint8_t(c) < 0x20 || uint8_t(c) > 0x7e || c == '"' || c == '\\'; });
    std::vector<bool>& matched = plan->name_matches.emplace_back();
    for (Language pattern : plan->patterns) {
      for (char c : name) pattern = languages_.derive(pattern, static_cast<uint8_t>(c));
      matched.push_back(languages_.has_empty(pattern));
    }
  }
  plan->child.assign(plan->names.size(), -1);
  name_tree(*plan);
  name_classes(*plan);
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
      const auto [it, is_new] =
          plan.nodes[at].next.try_emplace(static_cast<uint8_t>(c), static_cast<uint32_t>(plan.nodes.size()));
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

// Divides the names that no rule mentions by the patterns that they match.
void SchemaMachine::name_classes(ObjectPlan& plan) {
  std::vector<Language> unsure;
  plan.has_free_names = plan.patterns.empty();
  for (int number : plan.rules) {
    unsure.push_back(table_->objects[number].unsure_names);
    plan.has_free_names &= table_->objects[number].additional == kAnySchema;
  }
  const Language all_unsure = languages_.any_of(std::move(unsure));
  for (const std::string& name : plan.names) {
    Language rest = all_unsure;
    for (char c : name) rest = languages_.derive(rest, static_cast<uint8_t>(c));
    plan.is_unsure.push_back(languages_.has_empty(rest));
  }
  const auto divide = [&](auto& self, Language names, std::vector<bool>& matched) -> void {
    if (!languages_.is_live(names)) return;
    if (matched.size() < plan.patterns.size()) {
      const Language pattern = plan.patterns[matched.size()];
      for (const bool is_matched : {true, false}) {
        matched.push_back(is_matched);
        self(self, languages_.all_of({names, is_matched ? pattern : languages_.complement(pattern)}), matched);
        matched.pop_back();
      }
      return;
    }
    std::vector<std::string_view> mentioned;
    for (size_t i = 0; i < plan.names.size(); ++i) {
      if (!matched.empty() && plan.name_matches[i] == matched) mentioned.push_back(plan.names[i]);
    }
    if (!mentioned.empty()) names = languages_.all_of({names, languages_.complement(languages_.literals(mentioned))});
    if (languages_.is_live(names)) plan.classes.push_back({matched, names});
    if (plan.classes.size() > kMaxNameClasses)
      throw Error(
          "schema: 'patternProperties' and 'propertyNames' divide the names of an object into more than {} kinds",
          kMaxNameClasses);
  };
  std::vector<bool> matched;
  const Language sure = all_unsure == RegularLanguages::kNothing
                            ? languages_.any_text()
                            : languages_.all_of({languages_.any_text(), languages_.complement(all_unsure)});
  divide(divide, sure, matched);
}

SchemaMachine::ArrayPlan& SchemaMachine::array_plan(uint32_t value) {
  if (values_[value].array >= 0) return *arrays_[values_[value].array];
  auto plan = std::make_unique<ArrayPlan>();
  take_rules(value, JsonType::kArray, *plan);
  for (int number : plan->rules) {
    const ArrayRule& rule = table_->arrays[number];
    const int max_count = std::max({rule.min, rule.max, static_cast<int>(rule.prefix.size())}) + 1;
    plan->max_count = std::max(plan->max_count, static_cast<uint32_t>(max_count));
    plan->is_unique |= rule.is_unique;
  }
  plan->is_monotone = is_monotone(plan->need);
  for (Formula goal : plan->goals) plan->is_monotone &= is_monotone(goal);
  values_[value].array = static_cast<int>(arrays_.size());
  arrays_.push_back(std::move(plan));
  return *arrays_.back();
}

// Whether a leaf that becomes false never makes the formula true.
bool SchemaMachine::is_monotone(Formula formula) const {
  const Formulas::Kind kind = formulas_.kind(formula);
  if (kind == Formulas::Kind::kNot || kind == Formulas::Kind::kOne) return false;
  if (kind != Formulas::Kind::kAll && kind != Formulas::Kind::kAny) return true;
  return std::ranges::all_of(formulas_.parts(formula), [&](Formula part) { return is_monotone(part); });
}

}  // namespace ingot
