#include "text/grammar/schema/schema.h"

#include <algorithm>

#include "base/error.h"
#include "text/grammar/schema/reader.h"

namespace ingot {

namespace {

using Json = SchemaIndex::Json;

constexpr int kMaxValueDepth = 256;  // of nested values
constexpr size_t kMaxSchemaBytes = size_t{1} << 20;
constexpr size_t kMaxMembers = 16384;                // of an object: each name is compared with all earlier names
constexpr size_t kMaxEntries = size_t{1} << 18;      // of the table
constexpr size_t kMaxNameMatches = size_t{1} << 26;  // bytes of names times number of patterns
constexpr int kMaxSchemasOfValue = 512;              // nested schemas that constrain the same value

Json parse(std::string_view text) {
  if (text.size() > kMaxSchemaBytes) throw Error("the schema has {} bytes: at most {}", text.size(), kMaxSchemaBytes);
  std::array<size_t, kMaxValueDepth + 2> n_members{};  // [depth]: members so far of the open object
  try {
    return Json::parse(text, [&](int depth, Json::parse_event_t event, Json&) {
      if (depth > kMaxValueDepth) throw Error("schema: values nest deeper than {}", kMaxValueDepth);
      size_t& n = n_members[static_cast<size_t>(depth)];
      if (event == Json::parse_event_t::object_end) n_members[static_cast<size_t>(depth) + 1] = 0;
      if (event == Json::parse_event_t::key && ++n > kMaxMembers)
        throw Error("schema: an object has more than {} members", kMaxMembers);
      return true;
    });
  } catch (const Json::exception& error) {
    std::string_view reason = error.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    if (const size_t place = reason.find("line "); place != reason.npos) reason.remove_prefix(place);
    throw Error("the schema is not JSON: {}", printable(reason));
  }
}

// The start of every table. A copy is cheaper than building it again.
struct Standard {
  RegularLanguages languages;
  std::array<RegularLanguages::Id, kScalarTypes> full;
  Standard() {
    const RegularLanguages::Id booleans = languages.any_of({languages.literal("true"), languages.literal("false")});
    full = {languages.literal("null"), booleans, number_language(languages, {}).inside, languages.any_text()};
    number_language(languages, {.is_integer = true});
  }
};

const Standard& standard() {
  static const Standard made;
  return made;
}

}  // namespace

SchemaTable::SchemaTable() : languages(standard().languages), full(standard().full) {}

void read_schema(std::string_view text, const SchemaOptions& options, SchemaTable& table) {
  const Json json = parse(text);
  SchemaReader(json, options, table).read();
}

void SchemaReader::read() {
  t_.schemas.resize(2);
  t_.schemas[kAnySchema].languages = t_.full;
  t_.schemas[kNoSchema].types = 0;
  t_.root = schema(root_, "#");
  while (!pending_.empty()) {  // read bodies later, because a schema may contain itself
    const Pending next = pending_.back();
    pending_.pop_back();
    scope_ = next.place.scope;
    current_ = next.id;
    fill(*next.place.json, next.id, next.path);
  }
  if (n_name_bytes_ * n_patterns_ > kMaxNameMatches)  // each name is matched with each pattern
    throw Error("schema: 'patternProperties' and 'properties' together have too many patterns and names");
  if (!relaxed_.empty()) relax_opposites();
  check_loops();
  for (auto [object, names] : name_rules_) {
    ObjectRule& rule = t_.objects[static_cast<size_t>(object)];
    rule.names = name_language(names);
    rule.unsure_names = unsure_names(f_.leaf(names));
  }
}

void SchemaReader::fail(const std::string& path, std::string_view keyword, std::string_view what) {
  throw Error("schema {}: '{}' {}", printable(path), keyword, what);
}

void SchemaReader::refuse(const std::string& path, std::string_view keyword, std::string_view why) {
  if (!options_.is_lenient) fail(path, keyword, fmt::format("{}; remove the keyword, or relax the schema", why));
  t_.warnings.push_back(fmt::format("schema {}: '{}' is not enforced: {}", printable(path), keyword, why));
  relaxed_.insert(current_);
}

// ---- The table

Schema SchemaReader::plain() const {
  Schema schema;
  schema.languages = t_.full;
  return schema;
}

SchemaId SchemaReader::add(Schema schema) {
  if (t_.schemas.size() >= kMaxEntries) throw Error("schema: it has more than {} schemas", kMaxEntries);
  t_.schemas.push_back(schema);
  const auto id = static_cast<SchemaId>(t_.schemas.size() - 1);
  // Formulas order their parts by the creation of the leaves. Creating the leaf here keeps members in the document's
  // order.
  f_.leaf(id);
  return id;
}

int SchemaReader::add_rule(ObjectRule rule) {
  t_.objects.push_back(std::move(rule));
  return static_cast<int>(t_.objects.size() - 1);
}

int SchemaReader::add_rule(ArrayRule rule) {
  t_.arrays.push_back(std::move(rule));
  return static_cast<int>(t_.arrays.size() - 1);
}

// ---- Parts common to all schemas

SchemaId SchemaReader::schema(const Json& json, const std::string& path) {
  if (json.is_boolean()) return json.get<bool>() ? kAnySchema : kNoSchema;
  if (!json.is_object())
    throw Error("schema {}: a schema is an object or a boolean, not {}", printable(path), json.type_name());
  if (json.empty()) return kAnySchema;
  const Place place{&json, index_.enter(scope_, json)};
  const auto [it, is_new] = ids_.try_emplace(place, 0);
  if (is_new) {
    it->second = add(plain());
    pending_.push_back({place, it->second, path});
  }
  return it->second;
}

SchemaId SchemaReader::child(const Json& json, const char* key, const std::string& path) {
  return has(json, key) ? schema(json[key], path + "/" + key) : kAnySchema;
}

// Returns nothing if the keyword is absent or relaxed.
std::optional<SchemaReader::Place> SchemaReader::reference(const Json& from, const char* key, const std::string& path) {
  if (!has(from, key)) return std::nullopt;
  if (!from[key].is_string()) fail(path, key, "is not a string");
  const std::string text = from[key];
  const SchemaIndex::Target target = index_.find(from, key, text, scope_);
  if (target.is_outside) {
    const std::string shown = printable(text);
    refuse(path, key, fmt::format("points to '{}', which is not part of this schema; put it into $defs", shown));
    return std::nullopt;
  }
  if (target.json == nullptr) fail(path, key, fmt::format("points to '{}', which is not a schema", printable(text)));
  return Place{target.json, index_.enter(scope_, *target.json)};
}

// Names the keyword that most probably needs much work.
std::string SchemaReader::costly_keyword(const Json& json, const std::string& path) {
  constexpr std::array<const char*, 17> kKeys = {"oneOf",
                                                 "not",
                                                 "if",
                                                 "unevaluatedProperties",
                                                 "unevaluatedItems",
                                                 "dependentSchemas",
                                                 "dependentRequired",
                                                 "contains",
                                                 "anyOf",
                                                 "allOf",
                                                 "uniqueItems",
                                                 "propertyNames",
                                                 "pattern",
                                                 "patternProperties",
                                                 "enum",
                                                 "items",
                                                 "properties"};
  const auto found = std::ranges::find_if(kKeys, [&](const char* key) { return json.contains(key); });
  return fmt::format("schema {}: '{}'", printable(path), found == kKeys.end() ? "type" : *found);
}

void SchemaReader::fill(const Json& json, SchemaId id, const std::string& path) {
  try {
    read_body(json, id, path);
  } catch (const TooMuchWork& error) {
    throw Error("{}: {}", costly_keyword(json, path), error.what());
  }
}

void SchemaReader::read_body(const Json& json, SchemaId id, const std::string& path) {
  std::vector<Formula> others;
  for (const char* key : {"$ref", "$dynamicRef", "$recursiveRef"}) {
    if (const auto place = reference(json, key, path)) others.push_back(f_.leaf(schema(*place->json, json[key])));
  }
  if (index_.ref_is_alone() && json.contains("$ref")) {
    t_.schemas[id].others = f_.all(std::move(others));
    return;
  }
  warn_of_unknown(json, path);
  Schema schema = plain();
  read_types(json, path, schema);
  read_number(json, path, schema);
  read_string(json, path, schema);
  read_object(json, path, schema);
  read_array(json, path, schema);
  schema.objects = f_.all(read_dependencies(json, path));
  read_values(json, path, others);
  read_applicators(json, path, others);
  read_unevaluated(json, path, others);
  schema.others = f_.all(std::move(others));
  t_.schemas[id] = schema;
}

void SchemaReader::warn_of_unknown(const Json& json, const std::string& path) {
  for (const auto& [key, value] : json.items()) {
    if (!index_.is_unknown(key)) continue;
    t_.warnings.push_back(fmt::format("schema {}: '{}' is ignored: the draft of \"$schema\" does not have this keyword",
                                      printable(path), key));
  }
}

std::vector<Formulas::Id> SchemaReader::list(const Json& json, const std::string& path, const char* key) {
  std::vector<Formula> out;
  if (!json[key].is_array() || json[key].empty()) fail(path, key, "is not a list of schemas");
  for (size_t i = 0; i < json[key].size(); ++i)
    out.push_back(f_.leaf(schema(json[key][i], fmt::format("{}/{}/{}", path, key, i))));
  return out;
}

void SchemaReader::read_applicators(const Json& json, const std::string& path, std::vector<Formula>& others) {
  if (json.contains("allOf")) others.push_back(f_.all(list(json, path, "allOf")));
  if (json.contains("anyOf")) others.push_back(f_.any(list(json, path, "anyOf")));
  if (json.contains("oneOf")) others.push_back(f_.one(list(json, path, "oneOf")));
  if (json.contains("not")) others.push_back(f_.negation(f_.leaf(child(json, "not", path))));
  if (!has(json, "if")) return;
  const Formula when = f_.leaf(child(json, "if", path));
  const Formula then = f_.leaf(child(json, "then", path)), otherwise = f_.leaf(child(json, "else", path));
  others.push_back(f_.any({f_.all({when, then}), f_.all({f_.negation(when), otherwise})}));
}

// Refuses a schema that refers to itself through references alone, because such a schema has no meaning.
void SchemaReader::check_loops() {
  std::vector<uint8_t> state(t_.schemas.size());  // 1: on the path, 2: done
  const auto visit = [&](auto& self, SchemaId id, int depth) -> void {
    if (state[id] == 2) return;
    if (state[id] == 1) throw Error("schema: a '$ref' leads back to itself without a value in between");
    if (depth > kMaxSchemasOfValue) throw Error("schema: a chain of '$ref' has more than {} links", kMaxSchemasOfValue);
    state[id] = 1;
    for (Formula formula : {t_.schemas[id].others, t_.schemas[id].objects})
      f_.each_leaf(formula, [&](uint32_t next) { self(self, next, depth + 1); });
    state[id] = 2;
  };
  for (SchemaId id = 0; id < t_.schemas.size(); ++id) visit(visit, id, 0);
}

// The strings that meet the schema.
RegularLanguages::Id SchemaReader::name_language(SchemaId id) {
  if (const auto it = name_languages_.find(id); it != name_languages_.end()) return it->second;
  const Schema& schema = t_.schemas[id];
  constexpr auto string = static_cast<size_t>(JsonType::kString);
  const Language own = schema.types >> string & 1 ? schema.languages[string] : RegularLanguages::kNothing;
  return name_languages_[id] = l_.all_of({own, formula_language(schema.others)});
}

RegularLanguages::Id SchemaReader::formula_language(Formula id) {
  using enum Formulas::Kind;
  const Formulas::Kind kind = f_.kind(id);
  if (kind == kTrue) return l_.any_text();
  if (kind == kFalse) return RegularLanguages::kNothing;
  if (kind == kLeaf) return name_language(f_.number(id));
  std::vector<Language> parts;
  for (Formula part : f_.parts(id)) parts.push_back(formula_language(part));
  if (kind == kAll) return l_.all_of(std::move(parts));
  if (kind == kAny) return l_.any_of(std::move(parts));
  const Language sure = l_.all_of({l_.any_text(), l_.complement(unsure_names(id))});
  return l_.all_of({sure, kind == kNot ? l_.complement(parts[0]) : exactly_one(l_, parts)});
}

// The strings of which the reader does not know whether they meet the formula.
RegularLanguages::Id SchemaReader::unsure_names(Formula id) {
  std::vector<Language> all;
  f_.each_leaf(id, [&](uint32_t leaf) {
    const auto known = unsure_names_.find(leaf);
    if (known != unsure_names_.end()) return all.push_back(known->second);
    const Schema schema = t_.schemas[leaf];
    const Language own = schema.unsure[static_cast<size_t>(JsonType::kString)];
    all.push_back(unsure_names_[leaf] = l_.any_of({own, unsure_names(schema.others)}));
  });
  return l_.any_of(std::move(all));
}

RegularLanguages::Id exactly_one(RegularLanguages& l, const std::vector<RegularLanguages::Id>& parts) {
  RegularLanguages::Id none = l.any_text(), one = RegularLanguages::kNothing;
  RegularLanguages::Id seen = RegularLanguages::kNothing;
  for (RegularLanguages::Id part : parts) {
    if (!l.is_live(l.all_of({seen, part}))) {  // disjoint from all earlier parts, so nothing to subtract
      one = l.any_of({one, part});
    } else {
      const RegularLanguages::Id first = l.all_of({l.all_of({none, l.complement(seen)}), part});
      one = l.any_of({l.all_of({one, l.complement(part)}), first});
    }
    seen = l.any_of({seen, part});
  }
  return one;
}

}  // namespace ingot
