// Python's int(), float() and round() for values.
#pragma once
#include <optional>
#include <string_view>

#include "text/jinja/value.h"

namespace ingot::jinja {

// int(text, base) and float(text). Return nothing for text that Python refuses.
std::optional<Int> int_of_text(std::string_view text, int base);
std::optional<double> float_of_text(std::string_view text);

// Rounds to `digits` decimals; halves of the exact binary value round to even.
double round_float(double value, int digits);

}  // namespace ingot::jinja
