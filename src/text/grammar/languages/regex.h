// Reads regular expressions of ECMA 262 (`pattern` of JSON Schema, --regex) as languages. Anchors, look-ahead and
// character classes have the meaning of the standard. Back references (which are not regular), look-behind and word
// boundaries are refused, with their names in the error.
#pragma once
#include <string_view>

#include "text/grammar/languages/regular.h"

namespace ingot {

enum class RegexMatch {
  kSearch,  // all texts that contain a match
  kWhole,   // all texts that are a match as a whole
};

// Throws Error, which says what is wrong with the expression, and where.
RegularLanguages::Id parse_regex(RegularLanguages& languages, std::string_view pattern, RegexMatch match);

}  // namespace ingot
