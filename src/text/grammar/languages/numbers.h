// Languages of JSON numbers: ranges and multiples, exact for every digit.
#pragma once
#include <optional>
#include <string>

#include "text/grammar/languages/regular.h"

namespace ingot {

// A decimal number of any length: sign, digits without leading zeros ("0" alone is valid), decimals without trailing
// zeros.
struct Decimal {
  bool is_negative = false;
  std::string whole = "0", decimals;

  bool is_zero() const { return whole == "0" && decimals.empty(); }
  // Reads JSON's spelling of a number, with exponents. Returns nothing if an exponent needs more than 400 digits.
  static std::optional<Decimal> parse(std::string_view text);
};

struct NumberLimits {
  bool is_integer = false;
  bool has_decimals = true;  // 1.0 is an integer too (not in draft 4)
  std::optional<Decimal> minimum, maximum, multiple_of;
  bool excludes_minimum = false, excludes_maximum = false;
};

// Numbers: the spellings that belong to a set of numbers, and other spellings that may belong to the set too.
struct NumberSet {
  RegularLanguages::Id inside = 0, unsure = 0;
};

// The numbers within the limits. If there are limits, an exponent is allowed only for magnitudes below 1 or from 10 on,
// and only if all numbers of that range are within the limits. Integers and multiples never have an exponent.
NumberSet number_language(RegularLanguages& languages, const NumberLimits& limits);

// All spellings of one number without an exponent: 1, 1.0, 1.00. 0 has no sign.
NumberSet number_literal(RegularLanguages& languages, const Decimal& value);

// All spellings of zero.
RegularLanguages::Id zero_spellings(RegularLanguages& languages);

}  // namespace ingot
