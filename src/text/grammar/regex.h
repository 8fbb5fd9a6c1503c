// Regular expressions of ECMA 262 (`pattern` of JSON Schema, --regex) as languages. Anchors, look-ahead and character
// classes mean what they mean there; what is not regular (back references), look-behind and word boundaries are refused
// by name.
#pragma once
#include <string_view>

#include "text/grammar/regular.h"

namespace ingot {

enum class RegexMatch {
  kSearch,  // the language of all texts with a match somewhere in them
  kWhole,   // of all texts that are a match
};

// Throws Error that says what is wrong with the expression, and where.
RegularLanguages::Id parse_regex(RegularLanguages& languages, std::string_view pattern, RegexMatch match);

}  // namespace ingot
