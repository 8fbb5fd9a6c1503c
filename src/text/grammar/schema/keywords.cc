// The keywords of each type of value.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "text/grammar/schema/reader.h"

namespace ingot {

namespace {

constexpr int kMaxCount = 1 << 20;              // for minLength and similar keywords
constexpr double kMaxWhole = 9007199254740992;  // 2^53: JSON readers agree on whole numbers up to here
constexpr std::array<std::string_view, kJsonTypes> kTypeNames = {"null",   "boolean", "number",
                                                                 "string", "array",   "object"};

template <size_t n>
bool has_any(const SchemaIndex::Json& json, const std::array<const char*, n>& keys) {
  return std::ranges::any_of(keys, [&](const char* key) { return json.contains(key); });
}

// A step of a JSON pointer, escaped.
std::string step(std::string_view name) {
  std::string out = "/";
  for (char c : name) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

}  // namespace

void SchemaReader::read_types(const Json& json, const std::string& path, Schema& schema) {
  is_integer_ = false;
  if (!json.contains("type")) return;
  const Json& type = json["type"];
  uint8_t types = 0;
  bool has_number = false, has_integer = false;
  const auto read = [&](const Json& name) {
    if (!name.is_string()) fail(path, "type", "is neither a name nor a list of names");
    const std::string text = name;
    has_integer |= text == "integer";
    has_number |= text == "number";
    const auto* it = std::ranges::find(kTypeNames, text == "integer" ? "number" : std::string_view(text));
    if (it == kTypeNames.end())
      fail(path, "type", fmt::format("names '{}', which is not a JSON type", printable(text)));
    types |= static_cast<uint8_t>(1 << (it - kTypeNames.begin()));
  };
  if (type.is_array()) {
    if (type.empty()) fail(path, "type", "is an empty list");
    for (const Json& name : type) read(name);
  } else {
    read(type);
  }
  schema.types = types;
  is_integer_ = has_integer && !has_number;
}

// ---- Numbers

std::optional<Decimal> SchemaReader::number(const Json& json, const std::string& path, const char* key) {
  if (!json.contains(key)) return std::nullopt;
  if (!json[key].is_number()) fail(path, key, "is not a number");
  const std::optional<Decimal> value = Decimal::parse(json[key].dump());
  if (!value) fail(path, key, "is out of range");
  return value;
}

void SchemaReader::read_number(const Json& json, const std::string& path, Schema& schema) {
  constexpr std::array<const char*, 5> kKeys = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                                                "multipleOf"};
  if (!is_integer_ && !has_any(json, kKeys)) return;
  NumberLimits limits;
  limits.is_integer = is_integer_;
  limits.has_decimals = !(limits.is_integer && index_.draft() <= Draft::k4);
  limits.minimum = number(json, path, "minimum");
  limits.maximum = number(json, path, "maximum");
  std::vector<Language> inside, unsure;
  const auto add = [&](const NumberLimits& some) {
    const NumberSet set = number_language(l_, some);
    inside.push_back(set.inside);
    unsure.push_back(set.unsure);
  };
  for (const bool is_minimum : {true, false}) {  // a flag in draft 4, a separate limit in later drafts
    const char* key = is_minimum ? "exclusiveMinimum" : "exclusiveMaximum";
    if (!json.contains(key)) continue;
    if (json[key].is_boolean()) {
      (is_minimum ? limits.excludes_minimum : limits.excludes_maximum) = json[key];
      continue;
    }
    NumberLimits own;
    (is_minimum ? own.minimum : own.maximum) = number(json, path, key);
    (is_minimum ? own.excludes_minimum : own.excludes_maximum) = true;
    add(own);
  }
  limits.multiple_of = number(json, path, "multipleOf");
  if (limits.multiple_of && (limits.multiple_of->is_negative || limits.multiple_of->is_zero()))
    fail(path, "multipleOf", "is not above 0");
  add(limits);
  constexpr auto number = static_cast<size_t>(JsonType::kNumber);
  schema.languages[number] = l_.all_of(std::move(inside));
  schema.unsure[number] = l_.any_of(std::move(unsure));
}

int SchemaReader::count(const Json& json, const std::string& path, const char* key, int absent) {
  if (!has(json, key)) return absent;
  const Json& value = json[key];
  const double number = value.is_number() ? value.get<double>() : -1;
  if (number < 0 || number != std::floor(number)) fail(path, key, "is not a whole number of at least 0");
  if (number > kMaxCount && absent < 0 && number <= kMaxWhole) return -1;  // no text is that long
  if (number > kMaxCount) fail(path, key, fmt::format("is too large: at most {}", kMaxCount));
  return static_cast<int>(number);
}

std::pair<int, int> SchemaReader::counts(const Json& json, const std::string& path, const char* min_key,
                                         const char* max_key) {
  const int min = count(json, path, min_key, 0), max = count(json, path, max_key, -1);
  if (max >= 0 && min > max) fail(path, min_key, fmt::format("is above {}: {} is above {}", max_key, min, max));
  return {min, max};
}

// ---- Strings

std::optional<RegularLanguages::Id> SchemaReader::regex(const std::string& pattern, const std::string& path,
                                                        const char* key, RegexMatch match) {
  try {
    return parse_regex(l_, pattern, match);
  } catch (const Error& error) {
    refuse(path, key, error.what());
    return std::nullopt;
  }
}

void SchemaReader::read_string(const Json& json, const std::string& path, Schema& schema) {
  std::vector<Language> parts;
  const auto add = [&](std::optional<Language> part) {
    if (part) parts.push_back(*part);
  };
  const auto [min, max] = counts(json, path, "minLength", "maxLength");
  if (min > 0 || max >= 0) parts.push_back(l_.repeat(l_.any_char(), min, max));
  if (json.contains("pattern")) {
    if (!json["pattern"].is_string()) fail(path, "pattern", "is not a string");
    add(regex(json["pattern"], path, "pattern", RegexMatch::kSearch));
  }
  constexpr auto string = static_cast<size_t>(JsonType::kString);
  const bool has_format = json.contains("format") && json["format"].is_string();
  const StringFormat* format = has_format ? find_string_format(json["format"].get<std::string>()) : nullptr;
  if (format != nullptr && format->pattern.empty()) {
    refuse(path, "format", fmt::format("'{}' cannot be enforced", format->name));
  } else if (format != nullptr) {
    add(regex(std::string(format->pattern), path, "format", RegexMatch::kWhole));
    if (!format->wider.empty() && !parts.empty()) {
      const Language wider = parse_regex(l_, format->wider, RegexMatch::kWhole);
      schema.unsure[string] = l_.all_of({wider, l_.complement(parts.back())});
    }
  }
  if (parts.empty()) return;
  if (parts.size() > 1) parts.push_back(l_.any_text());
  schema.languages[string] = l_.all_of(std::move(parts));
}

// ---- Objects

std::vector<std::string> SchemaReader::names(const Json& json, const std::string& path, const char* key) {
  std::vector<std::string> out;
  std::set<std::string> known;
  if (!json.is_array()) fail(path, key, "is not a list of names");
  for (const Json& name : json) {
    if (!name.is_string()) fail(path, key, "has an entry that is not a name");
    if (known.insert(name).second) out.push_back(name);
  }
  return out;
}

// A schema that requires these names.
SchemaId SchemaReader::presence(std::vector<std::string> names) {
  ObjectRule rule;
  rule.names = l_.any_text();
  rule.required = std::move(names);
  Schema schema = plain();
  schema.object = add_rule(std::move(rule));
  return add(schema);
}

void SchemaReader::read_object(const Json& json, const std::string& path, Schema& schema) {
  constexpr std::array<const char*, 7> kKeys = {"properties",    "patternProperties", "additionalProperties",
                                                "propertyNames", "required",          "minProperties",
                                                "maxProperties"};
  if (!has_any(json, kKeys)) return;
  ObjectRule rule;
  rule.names = l_.any_text();
  rule.additional = child(json, "additionalProperties", path);
  read_members(json, path, rule);
  if (json.contains("required")) {
    if (!json["required"].is_boolean()) {
      rule.required = names(json["required"], path, "required");
    } else if (index_.draft() != Draft::k3) {
      refuse(path, "required", "must be a list of names (since draft 4), not true or false");
    }
  }
  std::tie(rule.min, rule.max) = counts(json, path, "minProperties", "maxProperties");
  const bool limits_names = rule.limits_names = has(json, "propertyNames");
  rule.where = costly_keyword(json, path);
  schema.object = add_rule(std::move(rule));
  if (limits_names) name_rules_.emplace(schema.object, child(json, "propertyNames", path));
}

void SchemaReader::read_members(const Json& json, const std::string& path, ObjectRule& rule) {
  for (const char* key : {"properties", "patternProperties"}) {
    if (json.contains(key) && !json[key].is_object()) fail(path, key, "is not an object");
  }
  if (json.contains("properties")) {
    for (const auto& [name, value] : json["properties"].items()) {
      rule.properties.emplace_back(name, schema(value, path + "/properties" + step(name)));
      n_name_bytes_ += name.size() + 1;
    }
  }
  if (!json.contains("patternProperties")) return;
  n_patterns_ += json["patternProperties"].size();
  for (const auto& [pattern, value] : json["patternProperties"].items()) {
    const SchemaId id = schema(value, path + "/patternProperties" + step(pattern));
    if (const auto language = regex(pattern, path, "patternProperties", RegexMatch::kSearch)) {
      rule.patterns.emplace_back(*language, id);
    } else {
      rule.additional = kAnySchema;  // the pattern is not enforced, so the additional names are unknown
    }
  }
}

// Each dependency means: the name is absent, or the rest holds.
std::vector<Formulas::Id> SchemaReader::read_dependencies(const Json& json, const std::string& path) {
  std::vector<Formula> parts;
  for (const char* key : {"dependencies", "dependentRequired", "dependentSchemas"}) {
    if (!has(json, key)) continue;
    if (!json[key].is_object()) fail(path, key, "is not an object");
    for (const auto& [name, value] : json[key].items()) {
      const SchemaId then = value.is_array()    ? presence(names(value, path, key))
                            : value.is_string() ? presence({value.get<std::string>()})
                                                : schema(value, path + "/" + key + step(name));
      parts.push_back(f_.any({f_.negation(f_.leaf(presence({name}))), f_.leaf(then)}));
    }
  }
  return parts;
}

// ---- Arrays

void SchemaReader::read_array(const Json& json, const std::string& path, Schema& schema) {
  constexpr std::array<const char*, 7> kKeys = {"items",    "prefixItems", "additionalItems", "contains",
                                                "minItems", "maxItems",    "uniqueItems"};
  if (!has_any(json, kKeys)) return;
  ArrayRule rule;
  const bool is_tuple = json.contains("items") && json["items"].is_array();  // before draft 2020-12
  const char* prefix = is_tuple ? "items" : "prefixItems";
  if (has(json, prefix)) {
    if (!json[prefix].is_array()) fail(path, prefix, "is not a list of schemas");
    for (size_t i = 0; i < json[prefix].size(); ++i)
      rule.prefix.push_back(this->schema(json[prefix][i], fmt::format("{}/{}/{}", path, prefix, i)));
  }
  rule.rest = child(json, is_tuple ? "additionalItems" : "items", path);
  if (has(json, "contains")) {
    rule.contains = child(json, "contains", path);
    rule.min_contains = count(json, path, "minContains", 1);
    rule.max_contains = count(json, path, "maxContains", -1);
  }
  std::tie(rule.min, rule.max) = counts(json, path, "minItems", "maxItems");
  rule.is_unique = json.contains("uniqueItems") && json["uniqueItems"] == true;
  rule.where = costly_keyword(json, path);
  schema.array = add_rule(std::move(rule));
}

}  // namespace ingot
