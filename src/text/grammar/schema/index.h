// SchemaIndex: finds the schemas of a document by $id, $anchor and $dynamicAnchor, and resolves references. Also
// reports which keywords the document's draft lacks.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"

namespace ingot {

// The draft that "$schema" names. kAll: no draft or an unknown draft; the keywords of all drafts are read.
enum class Draft : int { k3 = 3, k4 = 4, k6 = 6, k7 = 7, k2019 = 2019, k2020 = 2020, kAll = 9999 };

class SchemaIndex {
 public:
  using Json = nlohmann::ordered_json;
  // Decides which schema each dynamic anchor refers to: the schema in the resource that was entered first. 0: no
  // dynamic anchor is known.
  using Scope = uint32_t;

  // Throws Error if schemas nest too deeply. `root` must outlive the index.
  explicit SchemaIndex(const Json& root);

  Draft draft() const { return draft_; }
  // Up to draft 7, keywords next to a $ref are ignored.
  bool ref_is_alone() const { return draft_ <= Draft::k7; }
  // Whether the keyword exists only in later drafts, and so has no meaning in this document.
  bool is_unknown(std::string_view keyword) const;

  // The scope inside `schema` when `schema` is entered from `scope`.
  Scope enter(Scope scope, const Json& schema);

  struct Target {
    const Json* json = nullptr;  // null: not found
    bool is_outside = false;     // the reference points outside the document
  };
  // The target of the reference `text`, which is the value of `keyword` ($ref, $dynamicRef, $recursiveRef) in `from`.
  Target find(const Json& from, std::string_view keyword, const std::string& text, Scope scope) const;

 private:
  enum class Role { kSchema, kSchemas, kOther };  // a schema, a map of schemas by name, or neither
  using Anchors = std::map<std::string, const Json*>;

  static Role role_of(Role parent, std::string_view key);
  void read(const Json& json, std::string base, Role role, int n_schemas);
  void read_names(const Json& json, std::string& base);
  const Json* follow(const Json& from, std::string_view pointer) const;
  const Json* member(const Json& object, const std::string& name) const;

  Draft draft_ = Draft::kAll;
  std::map<std::string, const Json*> named_;            // by absolute address
  std::unordered_map<const Json*, std::string> bases_;  // of each object: the address of its resource
  // For objects with many members: the members by name.
  mutable std::unordered_map<const Json*, std::unordered_map<std::string_view, const Json*>> members_;
  std::map<std::string, Anchors> dynamic_;  // of each resource; "": $recursiveAnchor
  std::vector<Anchors> scopes_{Anchors()};
  std::map<Anchors, Scope> scope_index_{{Anchors(), 0}};
};

}  // namespace ingot
