// Long because it is one table of keywords, each with its checks.
#include "text/grammar/schema.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "text/grammar/numbers.h"
#include "text/grammar/regex.h"

namespace ingot {

namespace {

using Json = nlohmann::ordered_json;
using Language = RegularLanguages::Id;

constexpr int kMaxDepth = 128;             // of values in values
constexpr size_t kMaxBytes = 8 << 20;
constexpr int kMaxCount = 1 << 20;         // minLength and its kin
constexpr int kMaxRefs = 64;               // of $ref to $ref without anything between

constexpr std::string_view kTypeNames[] = {"null", "boolean", "number", "string", "array", "object"};
constexpr uint8_t bit(JsonType type) { return static_cast<uint8_t>(1 << static_cast<int>(type)); }

// An absolute address of `reference`, seen from `base` (RFC 3986, section 5, without dots).
std::string resolve(const std::string& base, const std::string& reference) {
  if (reference.empty()) return base;
  if (const size_t colon = reference.find(':'); colon != std::string::npos && reference.find('/') > colon) return reference;
  if (reference.starts_with("#")) return base.substr(0, base.find('#')) + reference;
  const size_t host = base.find("://");
  const size_t path = host == std::string::npos ? 0 : base.find('/', host + 3);
  if (reference.starts_with("/")) return base.substr(0, path) + reference;
  const size_t slash = base.find_last_of('/');
  return (slash == std::string::npos ? "" : base.substr(0, slash + 1)) + reference;
}

class Reader {
 public:
  Reader(const SchemaOptions& options, SchemaTable& table) : options_(options), t_(table), l_(table.languages) {}

  void read(const Json& root) {
    t_.full = {l_.literal("null"), l_.any_of({l_.literal("true"), l_.literal("false")}), number_language(l_, {}), l_.any_text()};
    t_.schemas.resize(2);
    t_.schemas[kAnySchema].languages = t_.full;
    t_.schemas[kNoSchema].types = 0;
    if (root.is_object() && root.contains("$schema") && root["$schema"].is_string()) {
      const std::string draft = root["$schema"];
      for (const char* old : {"draft-03", "draft-04", "draft-06", "draft-07"}) {
        if (draft.find(old) != std::string::npos) ref_is_alone_ = true;
      }
      is_draft_4_ = draft.find("draft-03") != std::string::npos || draft.find("draft-04") != std::string::npos;
    }
    index(root, "", Role::kSchema, 0);
    root_ = &root;
    t_.root = schema(root, "#");
    while (!pending_.empty()) {  // bodies after names: a schema may contain itself
      const Pending next = pending_.back();
      pending_.pop_back();
      fill(*next.json, next.id, next.path);
    }
    check_loops();
  }

 private:
  struct Pending {
    const Json* json;
    SchemaId id;
    std::string path;
  };

  [[noreturn]] static void fail(const std::string& path, std::string_view keyword, std::string_view what) {
    throw Error("schema {}: '{}' {}", printable(path), keyword, what);
  }
  // What is right and cannot be enforced.
  void refuse(const std::string& path, std::string_view keyword, std::string_view why) {
    if (!options_.is_lenient) fail(path, keyword, fmt::format("{}; take it out, or relax the schema", why));
    t_.warnings.push_back(fmt::format("schema {}: '{}' is not enforced: {}", printable(path), keyword, why));
  }

  // What a value is to those who look for names: a schema, schemas by name, or something else.
  enum class Role { kSchema, kSchemas, kOther };

  static Role role_of(Role parent, std::string_view key) {
    constexpr std::string_view kMaps[] = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"};
    constexpr std::string_view kSchemas[] = {"items", "prefixItems", "additionalItems", "additionalProperties", "propertyNames", "contains", "allOf", "anyOf",
                                             "oneOf", "not", "if", "then", "else", "unevaluatedItems", "unevaluatedProperties"};
    if (parent == Role::kSchemas) return Role::kSchema;
    if (parent == Role::kOther) return Role::kOther;
    if (std::ranges::find(kMaps, key) != std::end(kMaps)) return Role::kSchemas;
    return std::ranges::find(kSchemas, key) != std::end(kSchemas) ? Role::kSchema : Role::kOther;
  }

  // Where each $id, $anchor and object is, before anything is read: a reference may point ahead.
  void index(const Json& json, std::string base, Role role, int depth) {
    if (depth > kMaxDepth) throw Error("schema: values nest deeper than {}", kMaxDepth);
    if (json.is_array()) {
      for (const Json& item : json) index(item, base, role, depth + 1);
    } else if (json.is_object()) {
      if (role == Role::kSchema) name(json, base);
      bases_[&json] = base;
      for (const auto& [key, value] : json.items()) index(value, base, role_of(role, key), depth + 1);
    }
  }

  void name(const Json& json, std::string& base) {
    for (const char* key : {"$id", "id"}) {
      if (!json.contains(key) || !json[key].is_string() || (ref_is_alone_ && json.contains("$ref"))) continue;
      const std::string id = resolve(base, json[key]);
      if (!std::string_view(id).ends_with("#") && id.find('#') != std::string::npos) {
        named_.emplace(id, &json);
      } else {
        base = id.substr(0, id.find('#'));
        named_.emplace(base, &json);
      }
    }
    for (const char* key : {"$anchor", "$dynamicAnchor"}) {
      if (!json.contains(key) || !json[key].is_string()) continue;
      named_.emplace(base + "#" + json[key].get<std::string>(), &json);
      n_anchors_[json[key]] += key[1] == 'd';
    }
  }

  SchemaId add(Schema schema) {
    t_.schemas.push_back(schema);
    return static_cast<SchemaId>(t_.schemas.size() - 1);
  }
  Schema plain() const {
    Schema schema;
    schema.languages = t_.full;
    return schema;
  }

  // The schema that stands at `json`; its body is read later.
  SchemaId schema(const Json& json, const std::string& path) {
    if (json.is_boolean()) return json.get<bool>() ? kAnySchema : kNoSchema;
    if (!json.is_object()) throw Error("schema {}: a schema is an object or a boolean, not {}", printable(path), json.type_name());
    if (json.empty()) return kAnySchema;
    const auto [it, is_new] = ids_.try_emplace(&json, 0);
    if (is_new) {
      it->second = add(plain());
      pending_.push_back({&json, it->second, path});
    }
    return it->second;
  }

  SchemaId reference(const Json& from, const std::string& text, const std::string& path, std::string_view keyword) {
    const std::string full = resolve(bases_.at(&from), text);
    const size_t hash = full.find('#');
    const std::string document = full.substr(0, hash), fragment = hash == std::string::npos ? "" : full.substr(hash + 1);
    const Json* at = nullptr;
    if (const auto it = named_.find(full); it != named_.end()) return schema(*it->second, path);
    if (document.empty()) {
      at = root_;
    } else if (const auto it = named_.find(document); it != named_.end()) {
      at = it->second;
    } else {
      fail(path, keyword, fmt::format("points to '{}', which is not part of this schema; put it into $defs", printable(text)));
    }
    if (!fragment.empty()) at = follow(at, fragment);
    if (at == nullptr) fail(path, keyword, fmt::format("points to '{}', which does not exist", printable(text)));
    if (!at->is_boolean() && !bases_.contains(at)) fail(path, keyword, fmt::format("points to '{}', which is not a schema", printable(text)));
    return schema(*at, text);
  }

  static const Json* follow(const Json* at, std::string_view pointer) {
    std::string decoded;  // of its % escapes
    for (size_t i = 0; i < pointer.size(); ++i) {
      if (pointer[i] == '%' && i + 2 < pointer.size()) {
        decoded += static_cast<char>(std::strtol(std::string(pointer.substr(i + 1, 2)).c_str(), nullptr, 16));
        i += 2;
      } else {
        decoded += pointer[i];
      }
    }
    try {
      const Json::json_pointer path(decoded);
      return at->contains(path) ? &at->at(path) : nullptr;
    } catch (const Json::exception&) {
      return nullptr;
    }
  }

  void fill(const Json& json, SchemaId id, const std::string& path) {
    std::vector<Formulas::Id> others;
    Schema schema = plain();
    if (json.contains("$ref") && json["$ref"].is_string() && ref_is_alone_) {
      t_.schemas[id].others = t_.formulas.leaf(reference(json, json["$ref"], path, "$ref"));
      return;
    }
    for (const char* key : {"$ref", "$dynamicRef", "$recursiveRef"}) {
      if (!json.contains(key) || !json[key].is_string()) continue;
      const std::string target = json[key];
      if (key[1] == 'd' && n_anchors_[target.substr(target.find('#') + 1)] > 1) {
        fail(path, key, "has several schemas to choose from; name one with $ref");
      }
      others.push_back(t_.formulas.leaf(reference(json, json[key], path, key)));
    }
    read_types(json, path, schema);
    read_number(json, path, schema);
    read_string(json, path, schema);
    read_object(json, path, schema);
    read_array(json, path, schema);
    read_values(json, path, others);
    read_applicators(json, path, others);
    read_unevaluated(json, path, others);
    schema.others = t_.formulas.all(std::move(others));
    t_.schemas[id] = schema;
  }

  void read_types(const Json& json, const std::string& path, Schema& schema) {
    if (!json.contains("type")) return;
    const Json& type = json["type"];
    uint8_t types = 0;
    bool has_number = false, has_integer = false;
    const auto read = [&](const Json& name) {
      if (!name.is_string()) fail(path, "type", "is neither a name nor a list of names");
      const std::string text = name;
      has_integer |= text == "integer";
      has_number |= text == "number";
      const auto it = std::ranges::find(kTypeNames, text == "integer" ? "number" : std::string_view(text));
      if (it == std::end(kTypeNames)) fail(path, "type", fmt::format("names no type of JSON: '{}'", printable(text)));
      types |= static_cast<uint8_t>(1 << (it - std::begin(kTypeNames)));
    };
    if (type.is_array()) {
      for (const Json& name : type) read(name);
    } else {
      read(type);
    }
    schema.types = types;
    is_integer_ = has_integer && !has_number;
  }

  std::optional<Decimal> number(const Json& json, const std::string& path, const char* key) {
    if (!json.contains(key)) return std::nullopt;
    if (!json[key].is_number()) fail(path, key, "is not a number");
    const std::optional<Decimal> value = Decimal::parse(json[key].dump());
    if (!value) fail(path, key, "is out of range");
    return value;
  }

  void read_number(const Json& json, const std::string& path, Schema& schema) {
    NumberLimits limits;
    limits.is_integer = std::exchange(is_integer_, false);
    limits.has_decimals = !(limits.is_integer && is_draft_4_);
    limits.minimum = number(json, path, "minimum");
    limits.maximum = number(json, path, "maximum");
    std::vector<Language> parts;
    for (const bool is_minimum : {true, false}) {  // a flag in draft 4, a limit of its own since
      const char* key = is_minimum ? "exclusiveMinimum" : "exclusiveMaximum";
      if (!json.contains(key)) continue;
      if (json[key].is_boolean()) {
        (is_minimum ? limits.excludes_minimum : limits.excludes_maximum) = json[key];
        continue;
      }
      NumberLimits own;
      (is_minimum ? own.minimum : own.maximum) = number(json, path, key);
      (is_minimum ? own.excludes_minimum : own.excludes_maximum) = true;
      parts.push_back(number_language(l_, own));
    }
    limits.multiple_of = number(json, path, "multipleOf");
    if (limits.multiple_of && (limits.multiple_of->is_negative || limits.multiple_of->is_zero())) {
      fail(path, "multipleOf", "is not above 0");
    }
    parts.push_back(number_language(l_, limits));
    schema.languages[static_cast<int>(JsonType::kNumber)] = l_.all_of(std::move(parts));
  }

  int count(const Json& json, const std::string& path, const char* key, int absent) {
    if (!json.contains(key)) return absent;
    const Json& value = json[key];
    const double number = value.is_number() ? value.get<double>() : -1;
    if (number < 0 || number != std::floor(number)) fail(path, key, "is not a whole number of at least 0");
    if (number > kMaxCount && absent < 0) return -1;  // no text is that long
    if (number > kMaxCount) fail(path, key, fmt::format("is too large: at most {}", kMaxCount));
    return static_cast<int>(number);
  }

  Language regex(const std::string& pattern, const std::string& path, const char* key, RegexMatch match) {
    try {
      return parse_regex(l_, pattern, match);
    } catch (const Error& error) {
      refuse(path, key, error.what());
      return l_.any_text();
    }
  }

  void read_string(const Json& json, const std::string& path, Schema& schema) {
    std::vector<Language> parts;
    const int min = count(json, path, "minLength", 0), max = count(json, path, "maxLength", -1);
    if (min > 0 || max >= 0) {
      parts.push_back(max >= 0 && max < min ? RegularLanguages::kNothing : l_.repeat(l_.any_char(), min, max));
    }
    if (json.contains("pattern")) {
      if (!json["pattern"].is_string()) fail(path, "pattern", "is not a string");
      parts.push_back(regex(json["pattern"], path, "pattern", RegexMatch::kSearch));
    }
    std::string_view rule;
    if (json.contains("format") && json["format"].is_string() && find_format(json["format"].get<std::string>(), &rule)) {
      if (rule.empty()) {
        refuse(path, "format", fmt::format("'{}' cannot be enforced", json["format"].get<std::string>()));
      } else {
        parts.push_back(regex(std::string(rule), path, "format", RegexMatch::kWhole));
      }
    }
    if (parts.empty()) return;
    if (parts.size() > 1 || parts[0] == RegularLanguages::kNothing) parts.push_back(l_.any_text());
    schema.languages[static_cast<int>(JsonType::kString)] = l_.all_of(std::move(parts));
  }

  SchemaId child(const Json& json, const char* key, const std::string& path, SchemaId absent = kAnySchema) {
    return json.contains(key) ? schema(json[key], path + "/" + key) : absent;
  }

  std::vector<std::string> names(const Json& json, const std::string& path, const char* key) {
    std::vector<std::string> out;
    if (!json.is_array()) fail(path, key, "is not a list of names");
    for (const Json& name : json) {
      if (!name.is_string()) fail(path, key, "has an entry that is not a name");
      if (std::ranges::find(out, name.get<std::string>()) == out.end()) out.push_back(name);
    }
    return out;
  }

  SchemaId presence(std::vector<std::string> names) {
    ObjectRule rule;
    rule.names = l_.any_text();
    rule.required = std::move(names);
    Schema schema = plain();
    schema.object = static_cast<int>(t_.objects.size());
    t_.objects.push_back(std::move(rule));
    return add(schema);
  }

  void read_object(const Json& json, const std::string& path, Schema& schema) {
    read_dependencies(json, path, schema);
    const char* keys[] = {"properties", "patternProperties", "additionalProperties", "propertyNames", "required", "minProperties", "maxProperties"};
    if (std::ranges::none_of(keys, [&](const char* key) { return json.contains(key); })) return;
    ObjectRule rule;
    rule.names = l_.any_text();
    for (const char* key : {"properties", "patternProperties"}) {
      if (json.contains(key) && !json[key].is_object()) fail(path, key, "is not an object");
    }
    if (json.contains("properties")) {
      for (const auto& [name, value] : json["properties"].items()) {
        rule.properties.emplace_back(name, this->schema(value, path + "/properties/" + name));
      }
    }
    if (json.contains("patternProperties")) {
      for (const auto& [pattern, value] : json["patternProperties"].items()) {
        const SchemaId id = this->schema(value, path + "/patternProperties/" + pattern);
        rule.patterns.emplace_back(regex(pattern, path, "patternProperties", RegexMatch::kSearch), id);
      }
    }
    rule.additional = child(json, "additionalProperties", path);
    if (json.contains("propertyNames")) {
      rule.limits_names = true;
      name_rules_.push_back({t_.objects.size(), child(json, "propertyNames", path)});
    }
    if (json.contains("required") && !json["required"].is_boolean()) rule.required = names(json["required"], path, "required");
    rule.min = count(json, path, "minProperties", 0);
    rule.max = count(json, path, "maxProperties", -1);
    schema.object = static_cast<int>(t_.objects.size());
    t_.objects.push_back(std::move(rule));
  }

  // "If this name is there, then ...": not there, or the rest holds.
  void read_dependencies(const Json& json, const std::string& path, Schema& schema) {
    std::vector<Formulas::Id> parts;
    for (const char* key : {"dependencies", "dependentRequired", "dependentSchemas"}) {
      if (!json.contains(key)) continue;
      if (!json[key].is_object()) fail(path, key, "is not an object");
      for (const auto& [name, value] : json[key].items()) {
        const SchemaId then = value.is_array() ? presence(names(value, path, key))
                              : value.is_string() ? presence({value.get<std::string>()})
                                                  : this->schema(value, path + "/" + key + "/" + name);
        const Formulas::Id has = t_.formulas.leaf(presence({name}));
        parts.push_back(t_.formulas.any({t_.formulas.negation(has), t_.formulas.leaf(then)}));
      }
    }
    schema.objects = t_.formulas.all(std::move(parts));
  }

  void read_array(const Json& json, const std::string& path, Schema& schema) {
    const char* keys[] = {"items", "prefixItems", "additionalItems", "contains", "minItems", "maxItems", "uniqueItems"};
    if (std::ranges::none_of(keys, [&](const char* key) { return json.contains(key); })) return;
    ArrayRule rule;
    const bool is_tuple = json.contains("items") && json["items"].is_array();  // until draft 2019-09
    const char* prefix = is_tuple ? "items" : "prefixItems";
    if (json.contains(prefix)) {
      if (!json[prefix].is_array()) fail(path, prefix, "is not a list of schemas");
      for (size_t i = 0; i < json[prefix].size(); ++i) {
        rule.prefix.push_back(this->schema(json[prefix][i], fmt::format("{}/{}/{}", path, prefix, i)));
      }
    }
    rule.rest = is_tuple ? child(json, "additionalItems", path) : child(json, "items", path);
    if (json.contains("contains")) {
      rule.contains = child(json, "contains", path);
      rule.min_contains = count(json, path, "minContains", 1);
      rule.max_contains = count(json, path, "maxContains", -1);
    }
    rule.min = count(json, path, "minItems", 0);
    rule.max = count(json, path, "maxItems", -1);
    rule.is_unique = json.contains("uniqueItems") && json["uniqueItems"] == true;
    schema.array = static_cast<int>(t_.arrays.size());
    t_.arrays.push_back(std::move(rule));
  }

  // enum and const.
  void read_values(const Json& json, const std::string& path, std::vector<Formulas::Id>& others) {
    if (json.contains("const")) others.push_back(value_formula({&json["const"]}));
    if (!json.contains("enum")) return;
    if (!json["enum"].is_array()) fail(path, "enum", "is not a list of values");
    std::vector<const Json*> values;
    for (const Json& value : json["enum"]) values.push_back(&value);
    others.push_back(value_formula(values));
  }

  Formulas::Id value_formula(const std::vector<const Json*>& values) {
    Schema scalars = plain();
    scalars.types = 0;
    std::vector<std::string> texts;
    std::array<std::vector<Language>, kScalarTypes> spellings;
    std::vector<Formulas::Id> parts;
    const auto allow = [&](JsonType type, Language language) {
      scalars.types |= bit(type);
      spellings[static_cast<int>(type)].push_back(language);
    };
    for (const Json* value : values) {
      if (value->is_string()) {
        texts.push_back(*value);
      } else if (value->is_object() || value->is_array()) {
        parts.push_back(t_.formulas.leaf(structure(*value)));
      } else if (value->is_number()) {
        const std::optional<Decimal> number = Decimal::parse(value->dump());
        allow(JsonType::kNumber, number ? number_literal(l_, *number) : l_.literal(value->dump()));
      } else {
        allow(value->is_null() ? JsonType::kNull : JsonType::kBool, l_.literal(value->dump()));
      }
    }
    if (!texts.empty()) {
      const std::vector<std::string_view> views(texts.begin(), texts.end());
      allow(JsonType::kString, l_.literals(views));
    }
    for (int type = 0; type < kScalarTypes; ++type) scalars.languages[type] = l_.any_of(std::move(spellings[type]));
    if (scalars.types != 0) parts.push_back(t_.formulas.leaf(add(scalars)));
    return t_.formulas.any(std::move(parts));
  }

  // A schema that exactly this array or object meets.
  SchemaId structure(const Json& value) {
    Schema schema = plain();
    schema.types = bit(value.is_array() ? JsonType::kArray : JsonType::kObject);
    const auto member = [&](const Json& item) {
      Schema holder = plain();
      holder.others = value_formula({&item});
      return add(holder);
    };
    if (value.is_array()) {
      ArrayRule rule;
      for (const Json& item : value) rule.prefix.push_back(member(item));
      rule.rest = kNoSchema;
      rule.min = static_cast<int>(value.size());
      schema.array = static_cast<int>(t_.arrays.size());
      t_.arrays.push_back(std::move(rule));
    } else {
      ObjectRule rule;
      rule.names = l_.any_text();
      rule.additional = kNoSchema;
      for (const auto& [name, item] : value.items()) {
        rule.properties.emplace_back(name, member(item));
        rule.required.push_back(name);
      }
      schema.object = static_cast<int>(t_.objects.size());
      t_.objects.push_back(std::move(rule));
    }
    return add(schema);
  }

  std::vector<Formulas::Id> list(const Json& json, const std::string& path, const char* key) {
    std::vector<Formulas::Id> out;
    if (!json[key].is_array() || json[key].empty()) fail(path, key, "is not a list of schemas");
    for (size_t i = 0; i < json[key].size(); ++i) {
      out.push_back(t_.formulas.leaf(schema(json[key][i], fmt::format("{}/{}/{}", path, key, i))));
    }
    return out;
  }

  void read_applicators(const Json& json, const std::string& path, std::vector<Formulas::Id>& others) {
    Formulas& f = t_.formulas;
    if (json.contains("allOf")) others.push_back(f.all(list(json, path, "allOf")));
    if (json.contains("anyOf")) others.push_back(f.any(list(json, path, "anyOf")));
    if (json.contains("oneOf")) others.push_back(f.one(list(json, path, "oneOf")));
    if (json.contains("not")) others.push_back(f.negation(f.leaf(child(json, "not", path))));
    if (json.contains("if")) {
      const Formulas::Id when = f.leaf(child(json, "if", path));
      const Formulas::Id then = f.leaf(child(json, "then", path)), otherwise = f.leaf(child(json, "else", path));
      others.push_back(f.any({f.all({when, then}), f.all({f.negation(when), otherwise})}));
    }
  }

  // The names and items that `json` and what always holds with it speak of. False: that depends on the value.
  bool evaluated(const Json& json, bool is_object, ObjectRule& names, ArrayRule& items, int depth) {
    if (depth > kMaxRefs) return false;
    if (!json.is_object()) return true;
    for (const char* key : {"anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "$dynamicRef", "$recursiveRef"}) {
      if (json.contains(key)) return false;
    }
    if (is_object && json.contains("properties")) {
      for (const auto& [name, value] : json["properties"].items()) names.properties.emplace_back(name, kAnySchema);
    }
    if (is_object && json.contains("patternProperties")) {
      for (const auto& [name, value] : json["patternProperties"].items()) {
        names.patterns.emplace_back(parse_regex(l_, name, RegexMatch::kSearch), kAnySchema);
      }
    }
    if (is_object && depth > 0 && (json.contains("additionalProperties") || json.contains("unevaluatedProperties"))) names.patterns.emplace_back(l_.any_text(), kAnySchema);
    if (!is_object) {
      if (json.contains("contains")) return false;
      const bool is_tuple = json.contains("items") && json["items"].is_array();
      const char* prefix = is_tuple ? "items" : "prefixItems";
      if (json.contains(prefix)) items.prefix.resize(std::max(items.prefix.size(), json[prefix].size()), kAnySchema);
      if ((json.contains("items") && !is_tuple) || json.contains("additionalItems") || (depth > 0 && json.contains("unevaluatedItems"))) items.rest = kAnySchema;
    }
    if (json.contains("allOf")) {
      for (const Json& part : json["allOf"]) {
        if (!evaluated(part, is_object, names, items, depth + 1)) return false;
      }
    }
    if (json.contains("$ref") && json["$ref"].is_string()) {
      const SchemaId id = reference(json, json["$ref"], "$ref", "$ref");
      for (const auto& [target, known] : ids_) {
        if (known == id) return evaluated(*target, is_object, names, items, depth + 1);
      }
    }
    return true;
  }

  void read_unevaluated(const Json& json, const std::string& path, std::vector<Formulas::Id>& others) {
    for (const bool is_object : {true, false}) {
      const char* key = is_object ? "unevaluatedProperties" : "unevaluatedItems";
      if (!json.contains(key) || json.contains(is_object ? "additionalProperties" : "\1")) continue;
      ObjectRule names;
      ArrayRule items;
      names.names = l_.any_text();
      const SchemaId rest = child(json, key, path);
      items.rest = kNoSchema;
      if (rest == kAnySchema) continue;
      if (!evaluated(json, is_object, names, items, 0)) {
        refuse(path, key, "beside a condition cannot be enforced");
        continue;
      }
      Schema schema = plain();
      if (is_object) {
        names.additional = rest;
        schema.object = static_cast<int>(t_.objects.size());
        t_.objects.push_back(std::move(names));
      } else {
        if (items.rest == kNoSchema) items.rest = rest;
        schema.array = static_cast<int>(t_.arrays.size());
        t_.arrays.push_back(std::move(items));
      }
      others.push_back(t_.formulas.leaf(add(schema)));
    }
  }

  // A schema that is itself, through references alone, says nothing that could be checked.
  void check_loops() {
    std::vector<uint8_t> state(t_.schemas.size());  // 1: on the way, 2: done
    const auto visit = [&](auto& self, SchemaId id, int depth) -> void {
      if (state[id] == 2) return;
      if (state[id] == 1 || depth > 4 * kMaxDepth) throw Error("schema: '$ref' leads back to itself without a value between");
      state[id] = 1;
      for (Formulas::Id formula : {t_.schemas[id].others, t_.schemas[id].objects}) {
        t_.formulas.each_leaf(formula, [&](uint32_t next) { self(self, next, depth + 1); });
      }
      state[id] = 2;
    };
    for (SchemaId id = 0; id < t_.schemas.size(); ++id) visit(visit, id, 0);
    for (auto [object, names] : name_rules_) t_.objects[object].names = name_language(names);
  }

  // What a string that meets the schema may hold.
  Language name_language(SchemaId id) {
    const Schema& schema = t_.schemas[id];
    Language own = schema.types & bit(JsonType::kString) ? schema.languages[static_cast<int>(JsonType::kString)] : RegularLanguages::kNothing;
    return l_.all_of({own, formula_language(schema.others)});
  }
  Language formula_language(Formulas::Id id) {
    std::vector<Language> parts;
    const Formulas::Kind kind = t_.formulas.kind(id);
    if (kind == Formulas::Kind::kTrue) return l_.any_text();
    if (kind == Formulas::Kind::kFalse) return RegularLanguages::kNothing;
    if (kind == Formulas::Kind::kLeaf) return name_language(t_.formulas.number(id));
    for (Formulas::Id part : t_.formulas.parts(id)) parts.push_back(formula_language(part));
    if (kind == Formulas::Kind::kNot) return l_.all_of({l_.any_text(), l_.complement(parts[0])});
    if (kind == Formulas::Kind::kAll) return l_.all_of(std::move(parts));
    if (kind == Formulas::Kind::kAny) return l_.any_of(std::move(parts));
    return exactly_one(l_, parts);
  }

  const SchemaOptions& options_;
  SchemaTable& t_;
  RegularLanguages& l_;
  const Json* root_ = nullptr;
  bool ref_is_alone_ = false, is_draft_4_ = false, is_integer_ = false;
  std::map<std::string, const Json*> named_;
  std::map<std::string, int> n_anchors_;  // of each $dynamicAnchor
  std::unordered_map<const Json*, std::string> bases_;
  std::unordered_map<const Json*, SchemaId> ids_;
  std::vector<Pending> pending_;
  std::vector<std::pair<size_t, SchemaId>> name_rules_;
};

}  // namespace

RegularLanguages::Id exactly_one(RegularLanguages& l, const std::vector<RegularLanguages::Id>& parts) {
  RegularLanguages::Id none = l.any_text(), one = RegularLanguages::kNothing;
  RegularLanguages::Id seen = RegularLanguages::kNothing;
  for (RegularLanguages::Id part : parts) {
    if (!l.is_live(l.all_of({seen, part}))) {  // apart from all before: nothing to subtract
      one = l.any_of({one, part});
    } else {
      one = l.any_of({l.all_of({one, l.complement(part)}), l.all_of({l.all_of({none, l.complement(seen)}), part})});
    }
    seen = l.any_of({seen, part});
  }
  return one;
}

void read_schema(std::string_view text, const SchemaOptions& options, SchemaTable& table) {
  if (text.size() > kMaxBytes) throw Error("a schema of {} bytes; at most {}", text.size(), kMaxBytes);
  Json json;
  try {
    int depth = 0;
    json = Json::parse(text, [&](int at, Json::parse_event_t, Json&) {
      depth = std::max(depth, at);
      if (at > kMaxDepth) throw Error("schema: values nest deeper than {}", kMaxDepth);
      return true;
    });
  } catch (const Json::exception& error) {
    throw Error("the schema is not JSON: {}", printable(error.what()));
  }
  Reader(options, table).read(json);
}

}  // namespace ingot
