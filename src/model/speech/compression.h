// How well a text can be compressed: repetitions compress well. Speech models that hang in a loop are found by it.
#pragma once
#include <string_view>

namespace ingot {

// The bytes of the text in relation to those that zlib makes of them at its usual level. 0 for no text.
double compression_ratio(std::string_view text);

}  // namespace ingot
