// Python's int(), float() and round() for values.
#pragma once
#include <optional>
#include <string_view>

#include "text/jinja/value.h"

namespace ingot::jinja {

// int(text, base) and float(text): nothing for a text that Python refuses.
std::optional<Int> int_of_text(std::string_view text, int base);
std::optional<double> float_of_text(std::string_view text);

// To `digits` decimals, halves of the exact binary value to even.
double round_float(double value, int digits);

}  // namespace ingot::jinja
