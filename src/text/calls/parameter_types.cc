#include "text/calls/parameter_types.h"

#include <algorithm>

#include "base/json.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 16;  // of nested schemas and references
constexpr int kMaxSchemas = 1024;
constexpr int kMaxParameters = 1 << 16;  // parameters beyond have an unknown kind

// Finds the types that the members of an object may have.
class TypeFinder {
 public:
  explicit TypeFinder(const Json& root) : root_(root) {}

  ParameterKinds find() {
    add_members(root_, 0);
    ParameterKinds kinds;
    for (auto& [name, member] : named_) {
      member.types.add(others_.without(member.covered).types());
      kinds.named[name] = member.types.kind();
    }
    kinds.others = others_.types().kind();
    return kinds;
  }

 private:
  struct Types {
    bool strings = false, nulls = false, others = false;
    bool any() const { return strings || nulls || others; }
    ParameterKind kind() const {
      if (strings && others) return ParameterKind::kMixed;
      if (strings) return nulls ? ParameterKind::kNullableString : ParameterKind::kString;
      return any() ? ParameterKind::kOther : ParameterKind::kUnknown;
    }
    void add(const Types& more) {
      strings |= more.strings;
      nulls |= more.nulls;
      others |= more.others;
    }
  };
  // In how many of the alternative objects the members without a name of their own have each type.
  struct Counts {
    int strings = 0, nulls = 0, others = 0;
    void add(const Types& more) {
      strings += more.strings;
      nulls += more.nulls;
      others += more.others;
    }
    Counts without(const Counts& less) const {
      return {strings - less.strings, nulls - less.nulls, others - less.others};
    }
    Types types() const { return {strings > 0, nulls > 0, others > 0}; }
  };
  struct Member {
    Types types;
    Counts covered;  // of the objects that name the member
  };

  // Adds the members that a schema of an object describes, and those of its alternatives.
  void add_members(const Json& schema, int depth) {
    if (!schema.is_object() || depth > kMaxDepth || ++n_objects_ > kMaxSchemas) return;
    const Types others = types_of_others(schema);
    others_.add(others);
    for (const auto& [key, value] : schema.items()) {
      if (key == "properties" && value.is_object()) {
        for (const auto& [name, member] : value.items()) add_member(name, types_of_member(member), others);
      } else if (key == "const") {
        add_values(value, others);
      } else if (key == "enum" && value.is_array()) {
        for (const Json& one : value) add_values(one, others);
      } else if (key == "dependentSchemas" && value.is_object()) {
        for (const Json& one : value) add_members(one, depth + 1);
      } else if ((key == "anyOf" || key == "oneOf" || key == "allOf") && value.is_array()) {
        for (const Json& one : value) add_members(one, depth + 1);
      } else if (key == "if" || key == "then" || key == "else") {
        add_members(value, depth + 1);
      } else if (key == "$ref" && value.is_string()) {
        if (const Json* target = target_of(value.get_ref<const std::string&>())) add_members(*target, depth + 1);
      }
    }
  }

  Types types_of_others(const Json& schema) {
    Types types;
    if (const auto more = schema.find("additionalProperties"); more != schema.end()) types = types_of_member(*more);
    if (const auto patterns = schema.find("patternProperties"); patterns != schema.end() && patterns->is_object())
      for (const Json& member : *patterns) types.add(types_of_member(member));
    return types;
  }

  void add_values(const Json& object, const Types& others) {
    if (!object.is_object()) return;
    for (const auto& [name, value] : object.items()) add_member(name, of_value(value), others);
  }

  void add_member(const std::string& name, const Types& types, const Types& others) {
    if (++n_members_ > kMaxParameters) return;
    Member& member = named_[name];
    member.types.add(types);
    member.covered.add(others);
  }

  Types types_of_member(const Json& schema) {
    n_schemas_ = 0;
    return n_members_ < kMaxParameters ? types_of(schema, 0) : Types();
  }

  static Types of_name(const Json& type) {
    return {type == "string", type == "null", type != "string" && type != "null"};
  }
  static Types of_value(const Json& value) {
    return {value.is_string(), value.is_null(), !value.is_string() && !value.is_null()};
  }

  Types types_of(const Json& schema, int depth) {
    if (!schema.is_object() || depth > kMaxDepth || ++n_schemas_ > kMaxSchemas) return {};
    Types types;
    if (const auto type = schema.find("type"); type != schema.end()) {
      if (!type->is_array()) return of_name(*type);
      for (const Json& one : *type) types.add(of_name(one));
      return types;
    }
    if (const auto value = schema.find("const"); value != schema.end()) return of_value(*value);
    if (const auto values = schema.find("enum"); values != schema.end() && values->is_array())
      for (const Json& value : *values) types.add(of_value(value));
    for (const char* key : {"anyOf", "oneOf"})
      if (const auto any = schema.find(key); any != schema.end() && any->is_array())
        for (const Json& one : *any) types.add(types_of(one, depth + 1));
    if (const auto ref = schema.find("$ref"); !types.any() && ref != schema.end() && ref->is_string())
      if (const Json* target = target_of(ref->get_ref<const std::string&>())) types = types_of(*target, depth + 1);
    if (const auto all = schema.find("allOf"); !types.any() && all != schema.end() && all->is_array())
      for (auto one = all->begin(); one != all->end() && !types.any(); ++one) types = types_of(*one, depth + 1);
    return types;
  }

  // The target of a reference within the document, or null.
  const Json* target_of(const std::string& ref) const {
    if (!ref.starts_with('#')) return nullptr;
    try {
      const Json::json_pointer pointer(ref.substr(1));
      return root_.contains(pointer) ? &root_.at(pointer) : nullptr;
    } catch (const Json::exception&) {
      return nullptr;
    }
  }

  const Json& root_;
  std::map<std::string, Member> named_;
  Counts others_;
  int n_objects_ = 0, n_members_ = 0, n_schemas_ = 0;
};

}  // namespace

ParameterKinds parameter_kinds(const Json& schema) { return TypeFinder(schema).find(); }

}  // namespace ingot
