// What kinds of values a tool's parameters may have, as far as tags need to know: text between tags is a string as it
// stands, or JSON. AnswerParser reads by these kinds, and ArgumentsMachine writes by them.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ingot {

enum class ParameterKind : uint8_t {
  kUnknown,         // the schema does not say
  kString,          // strings alone
  kNullableString,  // strings and null
  kMixed,           // strings and other types
  kOther,           // no strings
};

using ParameterKinds = std::map<std::string, ParameterKind, std::less<>>;

// Of each property that the schema of a tool's parameters names at its top. A schema that is malformed names none.
ParameterKinds parameter_kinds(const nlohmann::ordered_json& schema);

}  // namespace ingot
