#include "text/grammar/languages/numbers.h"

#include <charconv>
#include <tuple>

#include "base/error.h"
#include "text/grammar/languages/regex.h"

namespace ingot {

namespace {

using Id = RegularLanguages::Id;

constexpr int kMaxDigits = 400;
constexpr std::string_view kInteger = "-?(0|[1-9][0-9]*)(\\.0+)?";
constexpr std::string_view kPlain = "-?(0|[1-9][0-9]*)(\\.[0-9]+)?";
constexpr std::string_view kNumber = "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?";
constexpr std::string_view kPower = "-?(0|[1-9][0-9]*)(\\.[0-9]+)?[eE][+-]?[0-9]+";
constexpr std::string_view kDigits = "-?(0|[1-9][0-9]*)";
constexpr std::string_view kSmall = "[1-9](\\.[0-9]+)?[eE]-0*[1-9][0-9]*";     // between 0 and 1
constexpr std::string_view kLarge = "[1-9](\\.[0-9]+)?[eE]\\+?0*[1-9][0-9]*";  // 10 and above
constexpr std::string_view kUnsigned = "(0|[1-9][0-9]*)(\\.[0-9]+)?";

class Ranges {
 public:
  explicit Ranges(RegularLanguages& languages)
      : l_(languages),
        digit_(digits('0', '9')),
        digits_(l_.repeat(digit_, 0, RegularLanguages::kNoLimit)),
        fraction_(l_.any_of({RegularLanguages::kEmpty, point(l_.repeat(digit_, 1, RegularLanguages::kNoLimit))})) {}

  // Unsigned numbers of at least |limit|, or above |limit| if `is_strict`.
  Id at_least(const Decimal& limit, bool is_strict) {
    const std::string& whole = limit.whole;
    std::vector<Id> parts;
    const int n = static_cast<int>(whole.size());
    parts.push_back(
        l_.concat(digits('1', '9'), l_.concat(l_.repeat(digit_, n, RegularLanguages::kNoLimit), fraction_)));
    for (int i = 0; i < n; ++i) {  // the same number of digits: i equal digits, then a larger digit
      if (whole[i] == '9') continue;
      const Id rest = l_.concat(l_.repeat(digit_, n - 1 - i, n - 1 - i), fraction_);
      parts.push_back(l_.concat(l_.literal(whole.substr(0, i)), l_.concat(digits(whole[i] + 1, '9'), rest)));
    }
    parts.push_back(l_.concat(l_.literal(whole), decimals_at_least(limit.decimals, is_strict)));
    return l_.any_of(std::move(parts));
  }

 private:
  Id digits(int first, int last) {
    ByteSet set;
    for (int c = first; c <= last; ++c) set.set(static_cast<size_t>(c));
    return l_.bytes(set);
  }
  Id point(Id rest) { return l_.concat(l_.literal("."), rest); }

  Id decimals_at_least(const std::string& decimals, bool is_strict) {
    std::vector<Id> parts;
    const Id above_zero =
        l_.concat(l_.repeat(l_.literal("0"), 0, RegularLanguages::kNoLimit), l_.concat(digits('1', '9'), digits_));
    if (decimals.empty()) return is_strict ? point(above_zero) : fraction_;
    for (size_t i = 0; i < decimals.size(); ++i) {
      if (decimals[i] == '9') continue;
      parts.push_back(l_.concat(l_.literal(decimals.substr(0, i)), l_.concat(digits(decimals[i] + 1, '9'), digits_)));
    }
    parts.push_back(l_.concat(l_.literal(decimals), is_strict ? above_zero : digits_));
    return point(l_.any_of(std::move(parts)));
  }

  RegularLanguages& l_;
  Id digit_, digits_, fraction_;
};

int compare(const Decimal& a, const Decimal& b) {
  if (a.is_negative != b.is_negative) return a.is_negative ? -1 : 1;
  const auto magnitude = [](const Decimal& x) { return std::tuple(x.whole.size(), x.whole, x.decimals); };
  const auto order = magnitude(a) <=> magnitude(b);
  const int sign = order < 0 ? -1 : order > 0 ? 1 : 0;
  return a.is_negative ? -sign : sign;
}

// The numbers in kPlain's notation on one side of a limit.
Id beyond(RegularLanguages& l, const Decimal& limit, bool is_minimum, bool is_strict) {
  const Id any = parse_regex(l, kUnsigned, RegexMatch::kWhole), minus = l.literal("-");
  const Id zeros = parse_regex(l, "-0(\\.0+)?", RegexMatch::kWhole);
  Ranges ranges(l);
  const bool same_side = limit.is_negative != is_minimum || limit.is_zero();
  if (same_side) {  // the limit's own sign, and at least its magnitude
    const Id far = ranges.at_least(limit, is_strict);
    const Id signed_far = is_minimum ? far : l.concat(minus, far);
    return limit.is_zero() && !is_strict
               ? l.any_of({signed_far, zeros, parse_regex(l, "0(\\.0+)?", RegexMatch::kWhole)})
               : l.all_of({signed_far, is_strict ? l.complement(zeros) : RegularLanguages::kAnything});
  }
  const Id near = l.all_of({any, l.complement(ranges.at_least(limit, !is_strict))});
  return is_minimum ? l.any_of({any, l.concat(minus, near)}) : l.any_of({near, l.concat(minus, any)});
}

Id multiples_of(RegularLanguages& l, const Decimal& step) {
  uint64_t divisor = 0;
  const std::string digits = step.whole + step.decimals;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), divisor);
  if (error != std::errc() || divisor == 0 || divisor > UINT32_MAX) {
    throw Error("multipleOf: {}.{} has too many digits", step.whole, step.decimals);
  }
  const Id minus = l.any_of({RegularLanguages::kEmpty, l.literal("-")});
  return l.concat(minus, l.multiples(divisor, static_cast<int>(step.decimals.size())));
}

}  // namespace

std::optional<Decimal> Decimal::parse(std::string_view text) {
  Decimal out;
  size_t i = 0;
  if (i < text.size() && text[i] == '-') out.is_negative = true, ++i;
  std::string digits;
  int point = -1, exponent = 0;
  for (; i < text.size() && text[i] != 'e' && text[i] != 'E'; ++i) {
    if (text[i] == '.') {
      point = static_cast<int>(digits.size());
    } else {
      digits += text[i];
    }
  }
  if (point < 0) point = static_cast<int>(digits.size());
  if (i < text.size()) {
    const char* begin = text.data() + i + 1 + (i + 1 < text.size() && text[i + 1] == '+');
    if (std::from_chars(begin, text.data() + text.size(), exponent).ec != std::errc()) return std::nullopt;
  }
  if (exponent > kMaxDigits || exponent < -kMaxDigits || digits.size() > kMaxDigits) return std::nullopt;
  point += exponent;
  if (point < 0) digits.insert(0, static_cast<size_t>(-point), '0'), point = 0;
  if (point > static_cast<int>(digits.size())) digits.append(static_cast<size_t>(point) - digits.size(), '0');
  out.whole = digits.substr(0, static_cast<size_t>(point));
  out.decimals = digits.substr(static_cast<size_t>(point));
  out.whole.erase(0, out.whole.find_first_not_of('0'));
  if (out.whole.empty()) out.whole = "0";
  while (!out.decimals.empty() && out.decimals.back() == '0') out.decimals.pop_back();
  if (out.is_zero()) out.is_negative = false;
  return out;
}

NumberSet number_language(RegularLanguages& l, const NumberLimits& limits) {
  const bool is_free = !limits.minimum && !limits.maximum && !limits.multiple_of;
  const std::string_view base = !limits.is_integer    ? (is_free ? kNumber : kPlain)
                                : limits.has_decimals ? kInteger
                                                      : kDigits;
  std::vector<Id> parts{parse_regex(l, base, RegexMatch::kWhole)};
  if (is_free && !limits.is_integer) return {parts[0], RegularLanguages::kNothing};
  if (limits.minimum) parts.push_back(beyond(l, *limits.minimum, true, limits.excludes_minimum));
  if (limits.maximum) parts.push_back(beyond(l, *limits.maximum, false, limits.excludes_maximum));
  if (limits.multiple_of) parts.push_back(multiples_of(l, *limits.multiple_of));
  std::vector<Id> inside{l.all_of(std::move(parts))}, known;
  const bool is_dense = !limits.is_integer && !limits.multiple_of;
  const bool has_no_small = limits.is_integer || (limits.multiple_of && limits.multiple_of->decimals.empty());
  // Adds spellings of the numbers from `low` to `high`, if all or none of these numbers are within the limits.
  const auto add = [&](std::string_view pattern, bool is_negative, std::optional<int> low, std::optional<int> high) {
    const auto order = [](const Decimal& limit, int bound) {
      return compare(limit, *Decimal::parse(std::to_string(bound)));
    };
    const bool is_small = low && high;
    const bool is_out = (is_small && has_no_small) ||
                        (limits.maximum && low && order(*limits.maximum, *low) <= -!is_small) ||
                        (limits.minimum && high && order(*limits.minimum, *high) >= !is_small);
    const bool is_in =
        is_dense &&
        (!limits.minimum || (low && order(*limits.minimum, *low) <= -(!is_small && limits.excludes_minimum))) &&
        (!limits.maximum || (high && order(*limits.maximum, *high) >= (!is_small && limits.excludes_maximum)));
    if (!is_out && !is_in) return;
    const Id number = parse_regex(l, pattern, RegexMatch::kWhole);
    known.push_back(is_negative ? l.concat(l.literal("-"), number) : number);
    if (is_in) inside.push_back(known.back());
  };
  add(kSmall, false, 0, 1);  // without both ends
  add(kSmall, true, -1, 0);
  add(kLarge, false, 10, std::nullopt);
  add(kLarge, true, std::nullopt, -10);
  const Id powers = parse_regex(l, kPower, RegexMatch::kWhole);
  return {l.any_of(std::move(inside)), l.all_of({powers, l.complement(l.any_of(std::move(known)))})};
}

NumberSet number_literal(RegularLanguages& l, const Decimal& value) {
  const Id zeros = l.repeat(l.literal("0"), 0, RegularLanguages::kNoLimit);
  const Id some = l.repeat(l.literal("0"), 1, RegularLanguages::kNoLimit);
  const Id tail = value.decimals.empty() ? l.any_of({RegularLanguages::kEmpty, l.concat(l.literal("."), some)})
                                         : l.concat(l.literal("." + value.decimals), zeros);
  const Id number = l.concat(l.literal((value.is_negative ? "-" : "") + value.whole), tail);
  const Id powers = parse_regex(l, kPower, RegexMatch::kWhole);
  return {number, value.is_zero() ? l.any_of({powers, l.concat(l.literal("-"), number)}) : powers};
}

RegularLanguages::Id zero_spellings(RegularLanguages& l) {
  return parse_regex(l, "-?0(\\.0+)?([eE][+-]?[0-9]+)?", RegexMatch::kWhole);
}

}  // namespace ingot
