// Where the schemas of a document are: what $id, $anchor and $dynamicAnchor name, what a reference points to, and
// which keywords the document's draft has.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ingot {

// The draft that "$schema" names. kAll: none, or one that is not known; every keyword counts.
enum class Draft : int { k3 = 3, k4 = 4, k6 = 6, k7 = 7, k2019 = 2019, k2020 = 2020, kAll = 9999 };

class SchemaIndex {
 public:
  using Json = nlohmann::ordered_json;
  // The schemas that dynamic anchors mean: those of the resource that was entered first. 0: no anchor is known.
  using Scope = uint32_t;

  // Throws Error where schemas nest too deeply. `root` outlives the index.
  explicit SchemaIndex(const Json& root);

  Draft draft() const { return draft_; }
  // Until draft 7, what stands beside a $ref is ignored.
  bool ref_is_alone() const { return draft_ <= Draft::k7; }
  // A later draft has brought the keyword: in this document it says nothing.
  bool is_unknown(std::string_view keyword) const;

  // The scope inside of `schema`, which was reached in `scope`.
  Scope enter(Scope scope, const Json& schema);

  struct Target {
    const Json* json = nullptr;  // null: there is none
    bool is_outside = false;     // the reference leaves the document
  };
  // What the reference `text`, a value of `keyword` ($ref, $dynamicRef, $recursiveRef) of `from`, points to.
  Target find(const Json& from, std::string_view keyword, const std::string& text, Scope scope) const;

 private:
  enum class Role { kSchema, kSchemas, kOther };  // a schema, schemas by name, or neither
  using Anchors = std::map<std::string, const Json*>;

  static Role role_of(Role parent, std::string_view key);
  void read(const Json& json, std::string base, Role role, int n_schemas);
  void read_names(const Json& json, std::string& base);
  const Json* follow(const Json& from, std::string_view pointer) const;
  const Json* member(const Json& object, const std::string& name) const;

  const Json& root_;
  Draft draft_ = Draft::kAll;
  std::map<std::string, const Json*> named_;            // by absolute address
  std::unordered_map<const Json*, std::string> bases_;  // of each object: the address of its resource
  // Members of objects that have many, by name.
  mutable std::unordered_map<const Json*, std::unordered_map<std::string_view, const Json*>> members_;
  std::map<std::string, Anchors> dynamic_;  // of each resource; "": $recursiveAnchor
  std::vector<Anchors> scopes_{Anchors()};
  std::map<Anchors, Scope> scope_index_{{Anchors(), 0}};
};

}  // namespace ingot
