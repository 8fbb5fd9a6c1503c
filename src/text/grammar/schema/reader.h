// Reads one schema document into a table. schema.cc reads the parts common to all schemas, keywords.cc the
// keywords of each type, values.cc enum and const, and unevaluated.cc unevaluatedProperties and
// unevaluatedItems. relax.cc makes the table of a lenient reader sound.
#pragma once
#include <optional>
#include <set>
#include <unordered_map>

#include "text/grammar/languages/numbers.h"
#include "text/grammar/languages/regex.h"
#include "text/grammar/schema/index.h"
#include "text/grammar/schema/schema.h"

namespace ingot {

class SchemaReader {
 public:
  using Json = SchemaIndex::Json;

  SchemaReader(const Json& root, const SchemaOptions& options, SchemaTable& table)
      : root_(root), options_(options), t_(table), f_(table.formulas), l_(table.languages), index_(root) {}

  void read();
  Formulas::Id value_formula(const std::vector<const Json*>& values);

 private:
  using Language = RegularLanguages::Id;
  using Formula = Formulas::Id;
  using Scope = SchemaIndex::Scope;

  // A schema of the document, in a dynamic scope.
  struct Place {
    const Json* json;
    Scope scope;
    auto operator<=>(const Place&) const = default;
  };
  struct Pending {
    Place place;
    SchemaId id;
    std::string path;
  };
  struct HashPlace {
    size_t operator()(const Place& p) const {
      return std::hash<const void*>()(p.json) ^ (p.scope * size_t{0x9e3779b9});
    }
  };

  [[noreturn]] static void fail(const std::string& path, std::string_view keyword, std::string_view what);
  // Reports a valid keyword that cannot be enforced: an error, or a warning if lenient.
  void refuse(const std::string& path, std::string_view keyword, std::string_view why);
  static std::string costly_keyword(const Json& json, const std::string& path);
  // Whether the keyword is present and exists in the document's draft.
  bool has(const Json& json, const char* key) const { return json.contains(key) && !index_.is_unknown(key); }

  // The table.
  Schema plain() const;
  SchemaId add(Schema schema);
  int add_rule(ObjectRule rule);
  int add_rule(ArrayRule rule);

  // schema.cc
  SchemaId schema(const Json& json, const std::string& path);  // the body is read later
  SchemaId child(const Json& json, const char* key, const std::string& path);
  std::optional<Place> reference(const Json& from, const char* keyword, const std::string& path);
  void fill(const Json& json, SchemaId id, const std::string& path);
  void read_body(const Json& json, SchemaId id, const std::string& path);
  void warn_of_unknown(const Json& json, const std::string& path);
  void read_applicators(const Json& json, const std::string& path, std::vector<Formula>& others);
  std::vector<Formula> list(const Json& json, const std::string& path, const char* key);
  void check_loops();
  Language name_language(SchemaId id);
  Language formula_language(Formula id);
  Language unsure_names(Formula id);

  // keywords.cc
  void read_types(const Json& json, const std::string& path, Schema& schema);
  void read_number(const Json& json, const std::string& path, Schema& schema);
  void read_string(const Json& json, const std::string& path, Schema& schema);
  void read_object(const Json& json, const std::string& path, Schema& schema);
  void read_members(const Json& json, const std::string& path, ObjectRule& rule);
  void read_array(const Json& json, const std::string& path, Schema& schema);
  std::vector<Formula> read_dependencies(const Json& json, const std::string& path);
  std::optional<Decimal> number(const Json& json, const std::string& path, const char* key);
  int count(const Json& json, const std::string& path, const char* key, int absent);
  std::pair<int, int> counts(const Json& json, const std::string& path, const char* min_key, const char* max_key);
  std::optional<Language> regex(const std::string& pattern, const std::string& path, const char* key, RegexMatch match);
  std::vector<std::string> names(const Json& json, const std::string& path, const char* key);
  SchemaId presence(std::vector<std::string> names);

  // values.cc
  void read_values(const Json& json, const std::string& path, std::vector<Formula>& others);
  SchemaId structure(const Json& value);
  Schema structure_of_array(const Json& value);
  Schema structure_of_object(const Json& value);

  // unevaluated.cc
  // Members or items that a schema evaluates if `when` holds for the value.
  struct Evaluated {
    Formula when = Formulas::kTrue;
    bool all = false;
    std::vector<std::string> names;
    std::vector<Language> patterns;  // patterns of names
    size_t n_items = 0;              // the first n_items items
    SchemaId item = kNoSchema;       // items that match this schema
  };
  void read_unevaluated(const Json& json, const std::string& path, std::vector<Formula>& others);
  void collect(const Place& place, bool is_object, bool is_inside, Formula when, std::vector<Evaluated>& out);
  void collect_conditions(const Json& json, bool is_object, Formula when, std::vector<Evaluated>& out);
  Evaluated evaluated_members(const Json& json, bool is_inside);
  Evaluated evaluated_items(const Json& json, bool is_inside);
  // All names, in the order of the document, each with the condition under which it is evaluated.
  using Named = std::vector<std::pair<std::string, Formula>>;
  Named named_members(const std::vector<Evaluated>& evaluated);
  Formula members_formula(const std::vector<Evaluated>& evaluated, SchemaId rest);
  Formula named_formula(const Named& names, SchemaId rest);
  Formula unnamed_formula(const std::vector<Evaluated>& evaluated, const Named& names, SchemaId rest);
  Formula items_formula(const std::vector<Evaluated>& evaluated, SchemaId rest);
  Formula positions_formula(const std::vector<Evaluated>& evaluated, SchemaId rest);
  Formula rule(ObjectRule rule);
  Formula rule(ArrayRule rule);

  // relax.cc
  void relax_opposites();
  template <class Visit>
  void each_referenced(const Schema& schema, const Visit& visit) const;
  std::vector<bool> find_relaxed() const;
  Formula relaxed(Formula id, const std::vector<bool>& is_relaxed);

  const Json& root_;
  const SchemaOptions& options_;
  SchemaTable& t_;
  Formulas& f_;
  RegularLanguages& l_;
  SchemaIndex index_;
  Scope scope_ = 0;                // of the current schema
  SchemaId current_ = kAnySchema;  // the current schema
  bool is_integer_ = false;        // the current schema has the type "integer" and not "number"
  std::unordered_map<Place, SchemaId, HashPlace> ids_;
  std::vector<Pending> pending_;
  std::unordered_map<int, SchemaId> name_rules_;           // of object rules: their propertyNames
  std::unordered_map<SchemaId, Language> name_languages_;  // of name_language()
  std::unordered_map<SchemaId, Language> unsure_names_;    // of unsure_names()
  std::set<SchemaId> relaxed_;                             // schemas that are enforced only in part
  size_t n_name_bytes_ = 0, n_patterns_ = 0;               // of all properties and patternProperties
  size_t n_evaluated_ = 0;                                 // entries that collect() has found
  std::set<Place> open_places_;                            // of collect()
};

}  // namespace ingot
