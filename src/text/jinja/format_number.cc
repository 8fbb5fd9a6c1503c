#include "text/jinja/format_number.h"

#include <cmath>

#include "text/jinja/print.h"
#include "text/jinja/runtime.h"
#include "text/jinja/text.h"

namespace ingot::jinja {
namespace {

std::string grouped(std::string digits, char separator, size_t every) {
  size_t end = digits.find_first_not_of("0123456789abcdefABCDEF");
  if (end == std::string::npos) end = digits.size();
  for (size_t i = end; i > every; i -= every) digits.insert(i - every, 1, separator);
  return digits;
}

std::string with_sign(bool negative, const std::string& digits, const FormatSpec& spec) {
  return (negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign)) + digits;
}

}  // namespace

bool is_digit_at(std::string_view text, size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; }

Int read_number(std::string_view text, size_t& i) {
  Int value = 0;
  for (; is_digit_at(text, i); ++i) {
    value = value * 10 + (text[i] - '0');
    if (value > 1'000'000'000) throw Error("the width or precision of a format is too large");
  }
  return value;
}
std::string padded(Runtime& rt, const std::string& text, const FormatSpec& spec, char default_align) {
  const auto n = static_cast<Int>(count_chars(text));
  if (n >= spec.width) return text;
  const auto gap = static_cast<size_t>(spec.width - n);
  rt.meter.make(spec.fill.size(), gap);
  const char align = spec.align != 0 ? spec.align : default_align;
  auto fill = [&](size_t count) {
    std::string out;
    for (size_t i = 0; i < count; ++i) out += spec.fill;
    return out;
  };
  const size_t sign = align == '=' && !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ');
  switch (align) {
    case '<': return text + fill(gap);
    case '^': return fill(gap / 2) + text + fill(gap - gap / 2);
    case '=': return text.substr(0, sign) + fill(gap) + text.substr(sign);
    default: return fill(gap) + text;
  }
}

std::string int_text(Int value, const FormatSpec& spec) {
  // The magnitude of the lowest number has one more bit than the largest positive number.
  const auto magnitude = value < 0 ? ~static_cast<unsigned __int128>(value) + 1 : static_cast<unsigned __int128>(value);
  std::string digits, prefix;
  switch (spec.type) {
    case 'x': digits = fmt::format("{:x}", magnitude), prefix = "0x"; break;
    case 'X': digits = fmt::format("{:X}", magnitude), prefix = "0X"; break;
    case 'o': digits = fmt::format("{:o}", magnitude), prefix = "0o"; break;
    case 'b': digits = fmt::format("{:b}", magnitude), prefix = "0b"; break;
    default: digits = fmt::format("{}", magnitude);
  }
  if (spec.group != 0) digits = grouped(digits, spec.group, prefix.empty() ? 3 : 4);
  return with_sign(value < 0, (spec.alternate ? prefix : "") + digits, spec);
}

std::string float_text(Runtime& rt, double value, const FormatSpec& spec) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double magnitude = std::fabs(value);
  std::string digits;
  if (std::isnan(value) || std::isinf(value)) {
    digits = std::isnan(value) ? "nan" : "inf";
    if (spec.type >= 'A' && spec.type <= 'Z') digits = to_upper(digits);
    return with_sign(negative, digits + (spec.type == '%' ? "%" : ""), spec);
  }
  const bool is_default = spec.type == 0;
  if (is_default && spec.precision < 0) {
    digits = float_repr(magnitude);
  } else {
    if (spec.precision > 100'000) throw Error("the precision of a format is too large");
    const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
    rt.meter.make(static_cast<size_t>(precision) + 320);
    const char type = spec.type == '%' ? 'f' : is_default || spec.type == 'n' ? 'g' : spec.type;
    const double shown = spec.type == '%' ? magnitude * 100 : magnitude;
    digits = fmt::format(fmt::runtime(fmt::format("{{:{}.{}{}}}", spec.alternate ? "#" : "", precision, type)), shown);
    if (is_default && digits.find_first_of(".e") == std::string::npos) digits += ".0";
    if (spec.type == '%') digits += '%';
  }
  if (spec.group != 0) digits = grouped(digits, spec.group, 3);
  return with_sign(negative, digits, spec);
}

bool is_float_type(char type) { return type != 0 && std::string_view("eEfFgG%n").find(type) != std::string_view::npos; }

}  // namespace ingot::jinja
