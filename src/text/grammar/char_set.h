// Sets of code points as sorted ranges, and the classes that regular expressions and grammars name.
#pragma once
#include <string_view>
#include <vector>

#include "text/grammar/regular.h"

namespace ingot {

using CharSet = std::vector<CharRange>;  // sorted, apart from each other

CharSet normalized(CharSet set);
CharSet inverted(const CharSet& set);

CharSet digit_chars();                                // \d
CharSet word_chars();                                 // \w
CharSet space_chars();                                // \s of ECMA 262
CharSet line_ends();                                  // what a dot does not match
// \p{name}: a general category ("L", "Lu", "Letter", "gc=Lu"), "Any", "ASCII", "Alphabetic" or "White_Space"; empty for
// a name that is not known.
CharSet property_chars(std::string_view name);

}  // namespace ingot
