// unevaluatedProperties and unevaluatedItems. Which members count as evaluated depends on the conditions that hold
// (anyOf, if, ...). So the members are grouped by the conditions under which they are evaluated. For each group, one of
// its conditions must hold, or its members must meet the keyword's schema. Items are grouped in the same way.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "text/grammar/schema/reader.h"

namespace ingot {

namespace {

constexpr size_t kMaxEvaluated = 1 << 16;  // names, patterns and subschemas that evaluate something
constexpr size_t kMaxMatches = 1 << 22;  // bytes of names times number of patterns
constexpr size_t kMaxInPlace = 64;       // nested subschemas
constexpr size_t kMaxConditional = 8;    // patterns of names, or `contains`: all combinations are tried

struct TooMany {};

bool has_bit(size_t set, size_t i) { return set >> i & 1; }

}  // namespace

Formulas::Id SchemaReader::rule(ObjectRule rule) {
  rule.names = l_.any_text();
  Schema schema = plain();
  schema.object = add_rule(std::move(rule));
  return f_.leaf(add(schema));
}

Formulas::Id SchemaReader::rule(ArrayRule rule) {
  Schema schema = plain();
  schema.array = add_rule(std::move(rule));
  return f_.leaf(add(schema));
}

void SchemaReader::read_unevaluated(const Json& json, const std::string& path, std::vector<Formula>& others) {
  for (const bool is_object : {true, false}) {
    const char* key = is_object ? "unevaluatedProperties" : "unevaluatedItems";
    if (!has(json, key)) continue;
    const SchemaId rest = child(json, key, path);
    if (rest == kAnySchema) continue;
    try {
      std::vector<Evaluated> evaluated;
      n_evaluated_ = 0;
      collect({&json, scope_}, is_object, false, Formulas::kTrue, evaluated);
      others.push_back(is_object ? members_formula(evaluated, rest) : items_formula(evaluated, rest));
    } catch (const TooMany&) {
      open_places_.clear();
      refuse(path, key, "depends on too many conditions");
    }
  }
}

// ---- Collecting the evaluated members and items

// Collects the members or items that the schema at `place` evaluates when the condition `when` holds. is_inside:
// `place` is a subschema of the schema with the keyword.
void SchemaReader::collect(const Place& place, bool is_object, bool is_inside, Formula when,
                           std::vector<Evaluated>& out) {
  const Json& json = *place.json;
  if (!json.is_object() || !open_places_.insert(place).second) return;
  if (open_places_.size() > kMaxInPlace || n_evaluated_ > kMaxEvaluated) throw TooMany();
  const Scope scope = std::exchange(scope_, place.scope);
  out.push_back(is_object ? evaluated_members(json, is_inside) : evaluated_items(json, is_inside));
  out.back().when = when;
  n_evaluated_ += 1 + out.back().names.size() + out.back().patterns.size();
  for (const char* key : {"$ref", "$dynamicRef", "$recursiveRef"}) {
    if (!has(json, key) || !json[key].is_string()) continue;
    const SchemaIndex::Target target = index_.find(json, key, json[key], scope_);
    if (target.json != nullptr) {
      collect({target.json, index_.enter(scope_, *target.json)}, is_object, true, when, out);
    } else {
      out.push_back({.when = when, .all = true});  // the reference is reported when its schema is read
    }
  }
  if (json.contains("allOf")) {
    for (const Json& part : json["allOf"]) collect({&part, index_.enter(scope_, part)}, is_object, true, when, out);
  }
  collect_conditions(json, is_object, when, out);
  scope_ = scope;
  open_places_.erase(place);
}

void SchemaReader::collect_conditions(const Json& json, bool is_object, Formula when, std::vector<Evaluated>& out) {
  const auto add = [&](const Json& part, Formula also) {
    collect({&part, index_.enter(scope_, part)}, is_object, true, f_.all({when, also}), out);
  };
  for (const char* key : {"anyOf", "oneOf"}) {
    if (!json.contains(key)) continue;
    for (const Json& part : json[key]) add(part, f_.leaf(schema(part, "#")));
  }
  if (has(json, "if")) {
    const Formula holds = f_.leaf(schema(json["if"], "#"));
    add(json["if"], holds);
    if (has(json, "then")) add(json["then"], holds);
    if (has(json, "else")) add(json["else"], f_.negation(holds));
  }
  if (!has(json, "dependentSchemas")) return;
  for (const auto& [name, part] : json["dependentSchemas"].items()) add(part, f_.leaf(presence({name})));
}

SchemaReader::Evaluated SchemaReader::evaluated_members(const Json& json, bool is_inside) {
  Evaluated out;
  out.all = json.contains("additionalProperties") || (is_inside && has(json, "unevaluatedProperties"));
  if (json.contains("properties")) {
    for (const auto& [name, value] : json["properties"].items()) out.names.push_back(name);
  }
  if (json.contains("patternProperties")) {
    for (const auto& [pattern, value] : json["patternProperties"].items()) {
      try {
        out.patterns.push_back(parse_regex(l_, pattern, RegexMatch::kSearch));
      } catch (const Error&) {
        out.all = true;  // the pattern is reported when its schema is read
      }
    }
  }
  return out;
}

SchemaReader::Evaluated SchemaReader::evaluated_items(const Json& json, bool is_inside) {
  Evaluated out;
  const bool is_tuple = json.contains("items") && json["items"].is_array();
  out.all = (json.contains("items") && !is_tuple) || (is_tuple && json.contains("additionalItems")) ||
            (is_inside && has(json, "unevaluatedItems"));
  const char* prefix = is_tuple ? "items" : "prefixItems";
  if (has(json, prefix)) out.n_items = json[prefix].size();
  if (has(json, "contains") && index_.draft() != Draft::k2019) out.item = schema(json["contains"], "#/contains");
  return out;
}

// ---- Members

SchemaReader::Named SchemaReader::named_members(const std::vector<Evaluated>& evaluated) {
  std::unordered_map<std::string, size_t> index;
  std::vector<std::vector<Formula>> when;
  Named out;
  size_t n_patterns = 0, n_bytes = 0;
  for (const Evaluated& one : evaluated) {
    for (const std::string& name : one.names) {
      const auto [it, is_new] = index.try_emplace(name, out.size());
      if (is_new) out.emplace_back(name, Formulas::kFalse), when.emplace_back(), n_bytes += name.size() + 1;
      when[it->second].push_back(one.when);
    }
    n_patterns += one.patterns.size();
  }
  if (n_bytes * n_patterns > kMaxMatches) throw TooMany();
  for (size_t i = 0; i < out.size(); ++i) {
    for (const Evaluated& one : evaluated) {
      for (Language pattern : one.patterns) {
        for (char c : out[i].first) pattern = l_.derive(pattern, static_cast<uint8_t>(c));
        if (l_.has_empty(pattern)) when[i].push_back(one.when);
      }
    }
    out[i].second = f_.any(std::move(when[i]));
  }
  return out;
}

Formulas::Id SchemaReader::members_formula(const std::vector<Evaluated>& evaluated, SchemaId rest) {
  const Named names = named_members(evaluated);
  std::vector<Formula> any;
  for (const Evaluated& one : evaluated) {
    if (one.all) any.push_back(one.when);
  }
  const Formula unnamed = unnamed_formula(evaluated, names, rest);
  any.push_back(f_.all({unnamed, named_formula(names, rest)}));
  return f_.any(std::move(any));
}

// The members that some schema names. Members with the same condition form a group.
Formulas::Id SchemaReader::named_formula(const Named& names, SchemaId rest) {
  std::map<Formula, ObjectRule> parts;
  for (const auto& [name, when] : names) {
    if (when != Formulas::kTrue) parts[when].properties.emplace_back(name, rest);
  }
  std::vector<Formula> all;
  for (auto& [when, part] : parts) all.push_back(f_.any({when, rule(std::move(part))}));
  return f_.all(std::move(all));
}

// All other members. Each combination of patterns that a name can match forms a group.
Formulas::Id SchemaReader::unnamed_formula(const std::vector<Evaluated>& evaluated, const Named& names, SchemaId rest) {
  ObjectRule named;
  for (const auto& [name, when] : names) named.properties.emplace_back(name, kAnySchema);
  std::vector<std::pair<Language, Formula>> patterns;  // patterns that evaluate only under a condition
  Language others = l_.any_text();
  for (const Evaluated& one : evaluated) {
    for (Language pattern : one.patterns) {
      if (one.when == Formulas::kTrue) {
        others = l_.all_of({others, l_.complement(pattern)});
      } else {
        patterns.emplace_back(pattern, one.when);
      }
    }
  }
  if (patterns.size() > kMaxConditional) throw TooMany();
  std::vector<Formula> all;
  for (size_t matched = 0; matched < size_t{1} << patterns.size(); ++matched) {
    std::vector<Language> part{others};
    std::vector<Formula> any;
    for (size_t i = 0; i < patterns.size(); ++i) {
      part.push_back(has_bit(matched, i) ? patterns[i].first : l_.complement(patterns[i].first));
      if (has_bit(matched, i)) any.push_back(patterns[i].second);
    }
    const Language language = l_.all_of(std::move(part));
    if (!l_.is_live(language)) continue;
    ObjectRule unnamed = named;
    const bool is_every_name = language == l_.any_text();
    if (!is_every_name) unnamed.patterns.emplace_back(l_.all_of({l_.any_text(), l_.complement(language)}), kAnySchema);
    unnamed.additional = rest;
    any.push_back(rule(std::move(unnamed)));
    all.push_back(f_.any(std::move(any)));
  }
  return f_.all(std::move(all));
}

// ---- Items

// Tries each combination of conditional `contains`. An item that meets one of them is evaluated.
Formulas::Id SchemaReader::items_formula(const std::vector<Evaluated>& evaluated, SchemaId rest) {
  std::vector<Formula> any, always{f_.leaf(rest)};
  std::vector<const Evaluated*> conditional;
  for (const Evaluated& one : evaluated) {
    if (one.all) any.push_back(one.when);
    if (one.item == kNoSchema) continue;
    if (one.when == Formulas::kTrue) {
      always.push_back(f_.leaf(one.item));
    } else {
      conditional.push_back(&one);
    }
  }
  if (conditional.size() > kMaxConditional) throw TooMany();
  for (size_t chosen = 0; chosen < size_t{1} << conditional.size(); ++chosen) {
    std::vector<Formula> item = always, all;
    for (size_t i = 0; i < conditional.size(); ++i) {
      if (!has_bit(chosen, i)) continue;
      item.push_back(f_.leaf(conditional[i]->item));
      all.push_back(conditional[i]->when);
    }
    Schema holder = plain();
    holder.others = f_.any(item);
    all.push_back(positions_formula(evaluated, item.size() == 1 ? rest : add(holder)));
    any.push_back(f_.all(std::move(all)));
  }
  return f_.any(std::move(any));
}

// Items beyond the prefixes that apply must meet `rest`.
Formulas::Id SchemaReader::positions_formula(const std::vector<Evaluated>& evaluated, SchemaId rest) {
  std::map<size_t, std::vector<Formula>> ends;  // by length of the prefix: the conditions of these prefixes
  for (const Evaluated& one : evaluated) ends[one.n_items].push_back(one.when);
  std::vector<Formula> all, reaches;  // reaches: the conditions of longer prefixes
  size_t end = SIZE_MAX;
  for (auto it = ends.rbegin(); it != ends.rend(); end = it->first, ++it) {
    ArrayRule part;
    part.prefix.assign(it->first, kAnySchema);
    if (end == SIZE_MAX) {
      part.rest = rest;
    } else {
      part.prefix.resize(end, rest);
    }
    const Formula known = f_.any(reaches);
    all.push_back(known == Formulas::kTrue ? known : f_.any({known, rule(std::move(part))}));
    reaches.insert(reaches.end(), it->second.begin(), it->second.end());
  }
  return f_.all(std::move(all));
}

}  // namespace ingot
