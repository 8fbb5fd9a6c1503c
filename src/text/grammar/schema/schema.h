// A JSON Schema as a table of rules (drafts 4 to 2020-12). Each schema has its own rules, by type, and a formula over
// other schemas ($ref, allOf, anyOf, oneOf, not, if). A keyword that cannot be enforced is refused with its path, never
// silently ignored. The table is made once for a schema; schema_machine.h runs it.
#pragma once
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/grammar/languages/regular.h"
#include "text/grammar/schema/formula.h"

namespace ingot {

enum class JsonType : uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };
inline constexpr int kScalarTypes = 4, kJsonTypes = 6;

using SchemaId = uint32_t;
inline constexpr SchemaId kAnySchema = 0, kNoSchema = 1;  // `true` and `false`

struct ObjectRule {
  std::vector<std::pair<std::string, SchemaId>> properties;         // in the order of the schema
  std::vector<std::pair<RegularLanguages::Id, SchemaId>> patterns;  // patterns of names
  SchemaId additional = kAnySchema;       // for names that match neither properties nor patterns
  RegularLanguages::Id names = 0;         // the allowed names
  RegularLanguages::Id unsure_names = 0;  // like Schema::unsure
  std::vector<std::string> required;
  int min = 0, max = -1;  // number of members; -1: no limit
  // Whether the rule only requires some names. Once these names are present, nothing can break the rule.
  bool is_presence_only() const {
    return properties.empty() && patterns.empty() && additional == kAnySchema && max < 0 && min == 0 && !limits_names;
  }
  bool limits_names = false;
  std::string where = {};  // path and keyword, for messages; empty: the rule is part of another one
};

struct ArrayRule {
  std::vector<SchemaId> prefix;
  SchemaId rest = kAnySchema;
  SchemaId contains = kAnySchema;
  int min_contains = 0, max_contains = -1;
  int min = 0, max = -1;
  bool is_unique = false;
  std::string where = {};
};

struct Schema {
  uint8_t types = (1 << kJsonTypes) - 1;                       // bit 1 << JsonType is set: the type is allowed
  std::array<RegularLanguages::Id, kScalarTypes> languages{};  // of the text; for a string, of its content
  // Texts outside `languages` that may be valid nevertheless: numbers with an exponent, for example. A rule that must
  // fail fails on none of these texts.
  std::array<RegularLanguages::Id, kScalarTypes> unsure{};
  int object = -1, array = -1;             // index in SchemaTable::objects and arrays, or -1
  Formulas::Id others = Formulas::kTrue;   // leaves: schemas that the same value must meet
  Formulas::Id objects = Formulas::kTrue;  // like `others`, for objects only
};

struct SchemaOptions {
  bool is_lenient = false;  // a keyword that cannot be enforced becomes a warning
};

struct SchemaTable {
  SchemaTable();
  RegularLanguages languages;
  Formulas formulas;
  std::array<RegularLanguages::Id, kScalarTypes> full;  // every text of a type
  std::vector<Schema> schemas;
  std::vector<ObjectRule> objects;
  std::vector<ArrayRule> arrays;
  SchemaId root = kAnySchema;
  std::vector<std::string> warnings;
};

// Reads the JSON text of a schema. Throws Error with the path and the keyword that is wrong or cannot be enforced.
void read_schema(std::string_view json, const SchemaOptions& options, SchemaTable& table);

// Adds the rules that only one value meets. Returns the formula whose leaves are these rules.
Formulas::Id add_value(std::string_view json, SchemaTable& table);

// The texts that belong to exactly one of `parts`. Each part must contain valid text only.
RegularLanguages::Id exactly_one(RegularLanguages& languages, const std::vector<RegularLanguages::Id>& parts);

// A `format` of JSON Schema. `pattern` is empty if no regular expression can check the format. `wider` is empty, or
// matches every valid text; the texts that only `wider` matches may be valid, but ingot never writes such a text.
struct StringFormat {
  std::string_view name, pattern, wider = {};
};
// Null for a format that JSON Schema does not define.
const StringFormat* find_string_format(std::string_view name);

}  // namespace ingot
