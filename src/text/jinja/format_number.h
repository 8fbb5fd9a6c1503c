// The common parts of Python's two ways of formatting: the specification of a conversion, formatted numbers, and
// padding.
#pragma once
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace ingot::jinja {

class Runtime;

// One conversion in either way: [[fill]align][sign][#][0][width][,][.precision][type]
struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // < > ^ =, or 0 for the default of the type
  char sign = '-';
  bool alternate = false, zero = false;
  char group = 0;  // , or _
  Int width = 0, precision = -1;
  char type = 0;
};

bool is_digit_at(std::string_view text, size_t i);
// Reads the digits at i and moves i past them. Returns 0 if there are no digits. Throws Error for a number that is too
// large.
Int read_number(std::string_view text, size_t& i);

bool is_float_type(char type);
std::string int_text(Int value, const FormatSpec& spec);
std::string float_text(Runtime& rt, double value, const FormatSpec& spec);

// Pads text to the width; longer text stays unchanged.
std::string padded(Runtime& rt, const std::string& text, const FormatSpec& spec, char default_align);

}  // namespace ingot::jinja
