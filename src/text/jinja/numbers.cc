#include "text/jinja/numbers.h"

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "text/jinja/text.h"

namespace ingot::jinja {
namespace {

// Removes white space at the ends and single underscores between digits; nothing if an underscore is anywhere else.
std::optional<std::string> bare_number(std::string_view text) {
  text = strip(text, nullptr, true, true);
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    auto is_digit = [&](size_t at) { return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])); };
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) {
      return std::nullopt;
    }
  }
  return out;
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = static_cast<char>(c | 0x20);
  return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
}

}  // namespace

std::optional<Int> int_of_text(std::string_view text, int base) {
  const auto bare = bare_number(text);
  if (!bare || (base != 0 && (base < 2 || base > 36))) return std::nullopt;
  std::string_view digits = *bare;
  const bool negative = !digits.empty() && digits[0] == '-';
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) digits.remove_prefix(1);
  const char letter = digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : ' ';
  const int prefix = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
  if (prefix != 0 && (base == 0 || base == prefix)) digits.remove_prefix(2), base = prefix;
  if (base == 0) base = 10;
  Int value = 0;
  for (char c : digits) {
    if (digit_of(c) >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, Int(base), &value) || __builtin_add_overflow(value, Int(digit_of(c)), &value)) {
      throw Error("the number is too large");
    }
  }
  if (digits.empty()) return std::nullopt;
  return negative ? -value : value;
}

std::optional<double> float_of_text(std::string_view text) {
  const auto bare = bare_number(text);
  if (!bare || bare->empty()) return std::nullopt;
  std::string_view digits = *bare;
  const bool negative = digits[0] == '-';
  if (digits[0] == '-' || digits[0] == '+') digits.remove_prefix(1);
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size() || digits.find('(') != std::string_view::npos) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    const size_t e = digits.find_first_of("eE");
    const bool tiny =
        e != std::string_view::npos ? digits.substr(e + 1, 1) == "-" : digits[0] == '0' || digits[0] == '.';
    value = tiny ? 0.0 : HUGE_VAL;
  } else if (error != std::errc()) {
    return std::nullopt;
  }
  return negative ? -value : value;
}

double round_float(double value, int digits) {
  if (!std::isfinite(value) || digits > 300) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits < 0) {
    const double unit = std::pow(10.0, -digits);
    return std::nearbyint(value / unit) * unit;
  }
  const std::string text = fmt::format("{:.{}f}", value, digits);  // exact decimals, correctly rounded
  double out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

}  // namespace ingot::jinja
