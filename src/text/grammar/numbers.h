// Numbers as JSON writes them, as languages: ranges and multiples, exactly, digit by digit.
#pragma once
#include <optional>
#include <string>

#include "text/grammar/regular.h"

namespace ingot {

// A decimal number, of any length: sign, digits without leading zeros ("0" alone), decimals without trailing zeros.
struct Decimal {
  bool is_negative = false;
  std::string whole = "0", decimals;

  bool is_zero() const { return whole == "0" && decimals.empty(); }
  // Of JSON's spelling of a number, exponents included; nothing where an exponent makes more than 400 digits.
  static std::optional<Decimal> parse(std::string_view text);
};

struct NumberLimits {
  bool is_integer = false;
  bool has_decimals = true;  // 1.0 is an integer too (it was not in draft 4)
  std::optional<Decimal> minimum, maximum, multiple_of;
  bool excludes_minimum = false, excludes_maximum = false;
};

// The numbers within the limits. An exponent is allowed where it alone decides: of numbers below 1 and of numbers from
// 10 on, where all of them are within the limits.
RegularLanguages::Id number_language(RegularLanguages& languages, const NumberLimits& limits);

// Every spelling of one number without an exponent: 1, 1.0, 1.00.
RegularLanguages::Id number_literal(RegularLanguages& languages, const Decimal& value);

}  // namespace ingot
