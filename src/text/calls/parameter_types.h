// The kinds of values that a tool's parameters may have. In tagged calls, the kind decides whether the text between
// tags is a plain string or JSON. AnswerParser and the machines of make_arguments_machine use the same kinds.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ingot {

enum class ParameterKind : uint8_t {
  kUnknown,         // the schema does not define the type
  kString,          // only strings
  kNullableString,  // strings and null
  kMixed,           // strings and other types
  kOther,           // no strings
};

using ParameterKinds = std::map<std::string, ParameterKind, std::less<>>;

// The kind of each property at the top level of a schema of a tool's parameters. Empty for a malformed schema.
ParameterKinds parameter_kinds(const nlohmann::ordered_json& schema);

}  // namespace ingot
