// Sets of code points as sorted ranges, and the named classes of regular expressions and grammars.
#pragma once
#include <string_view>
#include <vector>

#include "text/grammar/languages/regular.h"

namespace ingot {

using CharSet = std::vector<CharRange>;  // sorted, with gaps between ranges

CharSet normalized(CharSet set);
CharSet inverted(const CharSet& set);

CharSet digit_chars();                                // \d
CharSet word_chars();                                 // \w
CharSet space_chars();                                // \s of ECMA 262
CharSet line_ends();                                  // the characters that a dot does not match
// \p{name}: a general category ("L", "Lu", "Letter", "gc=Lu"), "Any", "ASCII", "Alphabetic" or "White_Space". Returns
// an empty set for an unknown name.
CharSet property_chars(std::string_view name);

}  // namespace ingot
