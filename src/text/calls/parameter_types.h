// The kinds of values that a tool's parameters may have, for tagged calls: the text between tags is a plain string or
// JSON. AnswerParser reads with these kinds, and the machines of make_arguments_machine write with them.
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

// The kind of each property at the top level of a schema of a tool's parameters. A malformed schema has no properties.
ParameterKinds parameter_kinds(const nlohmann::ordered_json& schema);

}  // namespace ingot
