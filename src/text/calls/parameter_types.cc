#include "text/calls/parameter_types.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 16;  // of nested schemas and references
constexpr int kMaxSchemas = 1024;

// Finds the types that the values of a schema may have.
class TypeFinder {
 public:
  explicit TypeFinder(const Json& root) : root_(root) {}
  ParameterKind find(const Json& schema) {
    n_schemas_ = 0;
    const Types types = types_of(schema, 0);
    if (types.strings && types.others) return ParameterKind::kMixed;
    if (types.strings) return types.nulls ? ParameterKind::kNullableString : ParameterKind::kString;
    return types.others || types.nulls ? ParameterKind::kOther : ParameterKind::kUnknown;
  }

 private:
  struct Types {
    bool strings = false, nulls = false, others = false;
    bool any() const { return strings || nulls || others; }
    void add(const Types& more) {
      strings |= more.strings;
      nulls |= more.nulls;
      others |= more.others;
    }
  };

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
  int n_schemas_ = 0;
};

}  // namespace

ParameterKinds parameter_kinds(const Json& schema) {
  ParameterKinds kinds;
  if (!schema.is_object()) return kinds;
  const auto properties = schema.find("properties");
  if (properties == schema.end() || !properties->is_object()) return kinds;
  TypeFinder finder(schema);
  for (const auto& [name, property] : properties->items()) kinds[name] = finder.find(property);
  return kinds;
}

}  // namespace ingot
