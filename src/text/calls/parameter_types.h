// The kinds of values that a tool's parameters may have. In tagged calls, the kind decides whether the text between
// tags is a plain string or JSON. AnswerParser and the machines of make_arguments_machine use the same kinds.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ingot {

enum class ParameterKind : uint8_t {
  kUnknown,         // the schema does not define the type
  kString,          // only strings
  kNullableString,  // strings and null
  kMixed,           // strings and other types
  kOther,           // no strings
};

struct ParameterKinds {
  std::map<std::string, ParameterKind, std::less<>> named;
  ParameterKind others = ParameterKind::kUnknown;  // of names that the schema allows without naming them

  ParameterKind of(std::string_view name) const {
    const auto found = named.find(name);
    return found == named.end() ? others : found->second;
  }
};

// The kinds of the members that a schema of a tool's parameters allows. If the schema has alternatives (anyOf, $ref and
// the like), the kind of a name covers all of them. Empty for a malformed schema.
ParameterKinds parameter_kinds(const nlohmann::ordered_json& schema);

}  // namespace ingot
