#include "text/grammar/schema/index.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace ingot {

namespace {

using Json = SchemaIndex::Json;

constexpr int kMaxSchemaDepth = 64;  // of nested schemas
constexpr size_t kFewMembers = 16;  // searched one by one

// Keywords, and the draft that introduced each. All other keywords exist since draft 4.
constexpr std::array<std::pair<std::string_view, Draft>, 17> kSince = {{
    {"const", Draft::k6},
    {"contains", Draft::k6},
    {"propertyNames", Draft::k6},
    {"if", Draft::k7},
    {"then", Draft::k7},
    {"else", Draft::k7},
    {"dependentRequired", Draft::k2019},
    {"dependentSchemas", Draft::k2019},
    {"minContains", Draft::k2019},
    {"maxContains", Draft::k2019},
    {"unevaluatedItems", Draft::k2019},
    {"unevaluatedProperties", Draft::k2019},
    {"$anchor", Draft::k2019},
    {"$recursiveRef", Draft::k2019},
    {"$dynamicAnchor", Draft::k2020},
    {"$dynamicRef", Draft::k2020},
    {"prefixItems", Draft::k2020},
}};

Draft draft_of(const Json& root) {
  constexpr std::array<std::pair<const char*, Draft>, 6> kNames = {{{"draft-03", Draft::k3},
                                                                    {"draft-04", Draft::k4},
                                                                    {"draft-06", Draft::k6},
                                                                    {"draft-07", Draft::k7},
                                                                    {"2019-09", Draft::k2019},
                                                                    {"2020-12", Draft::k2020}}};
  if (!root.is_object() || !root.contains("$schema") || !root["$schema"].is_string()) return Draft::kAll;
  const std::string& text = root["$schema"].get_ref<const std::string&>();
  for (auto [name, draft] : kNames) {
    if (text.find(name) != std::string::npos) return draft;
  }
  return Draft::kAll;
}

// Removes "." and ".." from the address's path (RFC 3986, section 5.2.4).
std::string without_dots(std::string address) {
  const size_t host = address.find("://");
  const size_t begin = host == std::string::npos ? 0 : std::min(address.find('/', host + 3), address.size());
  const std::string path = address.substr(begin, address.find('#') - begin), rest = address.substr(begin + path.size());
  if (path.find("./") == std::string::npos) return address;
  std::vector<std::string_view> steps;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view step = std::string_view(path).substr(at, end - at);
    if (step == ".." && steps.size() > 1) steps.pop_back();
    if (step != "." && step != "..") steps.push_back(step);
    at = end + 1;
  }
  address.resize(begin);
  for (size_t i = 0; i < steps.size(); ++i) address.append(i == 0 ? "" : "/").append(steps[i]);
  return address + rest;
}

// Resolves `reference` against `base` (RFC 3986, section 5).
std::string resolve(const std::string& base, const std::string& reference) {
  if (reference.empty()) return base;
  const size_t colon = reference.find(':');
  if (colon != std::string::npos && reference.find('/') > colon) return reference;
  if (reference.starts_with("#")) return base.substr(0, base.find('#')) + reference;
  const size_t host = base.find("://");
  const size_t path = host == std::string::npos ? 0 : base.find('/', host + 3);
  if (reference.starts_with("/")) return without_dots(base.substr(0, path) + reference);
  const size_t slash = base.find_last_of('/');
  return without_dots((slash == std::string::npos ? "" : base.substr(0, slash + 1)) + reference);
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

std::string without_percents(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      decoded += static_cast<char>(std::strtol(std::string(text.substr(i + 1, 2)).c_str(), nullptr, 16));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

const std::string* find_string(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_string() ? it->get_ptr<const std::string*>() : nullptr;
}

bool is_recursive_anchor(const Json& json) {
  return json.is_object() && json.contains("$recursiveAnchor") && json["$recursiveAnchor"] == true;
}

}  // namespace

SchemaIndex::SchemaIndex(const Json& root) : draft_(draft_of(root)) {
  named_.emplace("", &root);
  read(root, "", Role::kSchema, 0);
}

bool SchemaIndex::is_unknown(std::string_view keyword) const {
  const auto it = std::ranges::find(kSince, keyword, &std::pair<std::string_view, Draft>::first);
  return it != kSince.end() && it->second > draft_;
}

SchemaIndex::Role SchemaIndex::role_of(Role parent, std::string_view key) {
  constexpr std::array<std::string_view, 6> kMaps = {"properties",  "patternProperties", "$defs",
                                                     "definitions", "dependentSchemas",  "dependencies"};
  constexpr std::array<std::string_view, 15> kSchemas = {"items",
                                                         "prefixItems",
                                                         "additionalItems",
                                                         "additionalProperties",
                                                         "propertyNames",
                                                         "contains",
                                                         "allOf",
                                                         "anyOf",
                                                         "oneOf",
                                                         "not",
                                                         "if",
                                                         "then",
                                                         "else",
                                                         "unevaluatedItems",
                                                         "unevaluatedProperties"};
  if (parent == Role::kSchemas) return Role::kSchema;
  if (parent == Role::kOther) return Role::kOther;
  if (std::ranges::find(kMaps, key) != kMaps.end()) return Role::kSchemas;
  return std::ranges::find(kSchemas, key) != kSchemas.end() ? Role::kSchema : Role::kOther;
}

// Names are read before schemas, because a reference may point forward.
void SchemaIndex::read(const Json& json, std::string base, Role role, int n_schemas) {
  if (json.is_array()) {
    for (const Json& item : json) read(item, base, role, n_schemas);
  } else if (json.is_object()) {
    if (role == Role::kSchema) {
      if (++n_schemas > kMaxSchemaDepth) throw Error("schema: schemas nest deeper than {}", kMaxSchemaDepth);
      read_names(json, base);
    }
    bases_[&json] = base;
    for (const auto& [key, value] : json.items()) read(value, base, role_of(role, key), n_schemas);
  }
}

void SchemaIndex::read_names(const Json& json, std::string& base) {
  for (const char* key : {"$id", "id"}) {
    const std::string* text = find_string(json, key);
    if (text == nullptr || (ref_is_alone() && json.contains("$ref"))) continue;
    const std::string id = resolve(base, *text);
    const size_t hash = id.find('#');
    if (hash != std::string::npos && hash + 1 < id.size()) {
      named_.emplace(id, &json);
    } else {
      base = id.substr(0, hash);
      named_.emplace(base, &json);
    }
  }
  for (const char* key : {"$anchor", "$dynamicAnchor"}) {
    const std::string* name = find_string(json, key);
    if (name == nullptr || is_unknown(key)) continue;
    named_.emplace(base + "#" + *name, &json);
    if (key[1] == 'd') dynamic_[base].emplace(*name, &json);
  }
  if (is_recursive_anchor(json)) dynamic_[base].emplace("", &json);
}

const Json* SchemaIndex::member(const Json& object, const std::string& name) const {
  if (object.size() <= kFewMembers) {
    const auto it = object.find(name);
    return it == object.end() ? nullptr : &*it;
  }
  auto& members = members_[&object];
  if (members.empty()) {
    for (const auto& [key, value] : object.items()) members.emplace(key, &value);
  }
  const auto it = members.find(name);
  return it == members.end() ? nullptr : it->second;
}

// The target of a JSON pointer (RFC 6901), or null.
const Json* SchemaIndex::follow(const Json& from, std::string_view pointer) const {
  const std::string path = without_percents(pointer);
  if (!path.empty() && path[0] != '/') return nullptr;
  const Json* at = &from;
  for (size_t begin = 0; at != nullptr && begin < path.size();) {
    const size_t end = std::min(path.find('/', begin + 1), path.size());
    std::string step = path.substr(begin + 1, end - begin - 1);
    replace_all(step, "~1", "/");
    replace_all(step, "~0", "~");
    begin = end;
    if (at->is_object()) {
      at = member(*at, step);
    } else {
      const bool is_number = !step.empty() && step.size() < 8 && step.find_first_not_of("0123456789") == step.npos;
      const size_t i = at->is_array() && is_number ? std::stoul(step) : SIZE_MAX;
      at = i < at->size() ? &(*at)[i] : nullptr;
    }
  }
  return at;
}

SchemaIndex::Scope SchemaIndex::enter(Scope scope, const Json& schema) {
  if (dynamic_.empty()) return 0;
  const auto base = bases_.find(&schema);
  const auto own = base == bases_.end() ? dynamic_.end() : dynamic_.find(base->second);
  if (own == dynamic_.end()) return scope;
  Anchors anchors = scopes_[scope];
  anchors.insert(own->second.begin(), own->second.end());  // the outermost anchor of a name wins
  const auto [it, is_new] = scope_index_.try_emplace(std::move(anchors), static_cast<Scope>(scopes_.size()));
  if (is_new) scopes_.push_back(it->first);
  return it->second;
}

SchemaIndex::Target SchemaIndex::find(const Json& from, std::string_view keyword, const std::string& text,
                                      Scope scope) const {
  const std::string full = resolve(bases_.at(&from), text);
  const size_t hash = full.find('#');
  const std::string document = full.substr(0, hash), fragment = hash == std::string::npos ? "" : full.substr(hash + 1);
  const Json* at = nullptr;
  if (const auto it = named_.find(full); it != named_.end()) {
    at = it->second;
  } else if (const auto resource = named_.find(document); resource != named_.end()) {
    at = fragment.empty() ? resource->second : follow(*resource->second, fragment);
  } else {
    return {.is_outside = true};
  }
  if (at != nullptr && !at->is_boolean() && !bases_.contains(at)) at = nullptr;
  if (at == nullptr || keyword == "$ref") return {at};
  const bool is_dynamic = keyword == "$recursiveRef" ? is_recursive_anchor(*at)
                                                     : at->is_object() && find_string(*at, "$dynamicAnchor") &&
                                                           *find_string(*at, "$dynamicAnchor") == fragment;
  const Anchors& anchors = scopes_[scope];
  const auto it = anchors.find(keyword == "$recursiveRef" ? "" : fragment);
  return {is_dynamic && it != anchors.end() ? it->second : at};
}

}  // namespace ingot
