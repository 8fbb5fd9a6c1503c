#include "text/jinja/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/system.h"
#include "base/utf8.h"
#include "text/tokenizers/unicode.h"

namespace ingot::jinja {
namespace {

// Characters whose upper case is several characters (SpecialCasing.txt, without polytonic Greek). In title case, only
// the first of these characters is upper case.
struct LongCase {
  char32_t code;
  const char* upper;
  const char* title;
};
constexpr LongCase kLongCases[] = {
    {0xDF, "SS", "Ss"},     {0x149, "ʼN", "ʼN"},  {0x1F0, "J̌", "J̌"},    {0x390, "Ϊ́", "Ϊ́"},    {0x3B0, "Ϋ́", "Ϋ́"},
    {0x587, "ԵՒ", "Եւ"},    {0x1E96, "H̱", "H̱"},   {0x1E97, "T̈", "T̈"},   {0x1E98, "W̊", "W̊"},   {0x1E99, "Y̊", "Y̊"},
    {0x1E9A, "Aʾ", "Aʾ"},   {0xFB00, "FF", "Ff"}, {0xFB01, "FI", "Fi"}, {0xFB02, "FL", "Fl"}, {0xFB03, "FFI", "Ffi"},
    {0xFB04, "FFL", "Ffl"}, {0xFB05, "ST", "St"}, {0xFB06, "ST", "St"}, {0xFB13, "ՄՆ", "Մն"}, {0xFB14, "ՄԵ", "Մե"},
    {0xFB15, "ՄԻ", "Մի"},   {0xFB16, "ՎՆ", "Վն"}, {0xFB17, "ՄԽ", "Մխ"}};

utf8proc_category_t category(char32_t c) {
  return c == kBadByte ? UTF8PROC_CATEGORY_CN : utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT; }

bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027;
  }
}

// Whether a capital sigma ends a word, so that its lower case is the final small sigma.
bool is_final_sigma(std::string_view text, size_t at, bool after_cased) {
  if (!after_cased) return false;
  for (size_t i = at + char_at(text, at).n_bytes; i < text.size();) {
    const Char c = char_at(text, i);
    if (!is_case_ignorable(c.code)) return !is_cased(c.code);
    i += c.n_bytes;
  }
  return true;
}

// How a casing writes a character that stands after a cased one (in a word) or not, and first in the text or not.
Casing case_of(Casing casing, char32_t c, bool in_word, bool is_first) {
  switch (casing) {
    case Casing::kTitle: return in_word ? Casing::kLower : Casing::kTitle;
    case Casing::kCapitalized: return is_first ? Casing::kTitle : Casing::kLower;
    case Casing::kSwapped: return is_upper(c) ? Casing::kLower : Casing::kUpper;
    default: return casing;
  }
}

void append_lower(std::string& out, std::string_view text, size_t at, char32_t c, bool after_cased) {
  if (c == 0x130) {
    out += "i\xCC\x87";
  } else if (c == 0x3A3) {
    utf8_append(out, is_final_sigma(text, at, after_cased) ? 0x3C2 : 0x3C3);
  } else {
    utf8_append(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_upper(std::string& out, char32_t c, bool title) {
  auto found =
      std::find_if(std::begin(kLongCases), std::end(kLongCases), [&](const LongCase& l) { return l.code == c; });
  const auto code = static_cast<utf8proc_int32_t>(c);
  if (found != std::end(kLongCases)) {
    out += title ? found->title : found->upper;
  } else {
    utf8_append(out, static_cast<char32_t>(title ? utf8proc_totitle(code) : utf8proc_toupper(code)));
  }
}

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

}  // namespace

Char char_at(std::string_view text, size_t byte) {
  const std::string_view rest = text.substr(byte, 4);
  const size_t n = utf8_length(rest);
  return n == 0 ? Char{kBadByte, 1} : Char{utf8_decode(rest), n};
}

size_t count_chars(std::string_view text) {
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<signed char>(c) >= 0; }))
    return text.size();
  size_t n = 0;
  for (size_t i = 0; i < text.size(); i += char_at(text, i).n_bytes) ++n;
  return n;
}

size_t byte_of_char(std::string_view text, size_t index) {
  size_t byte = 0;
  for (; index > 0 && byte < text.size(); --index) byte += char_at(text, byte).n_bytes;
  return byte;
}

size_t last_char(std::string_view text) {
  size_t start = text.size() - 1;  // back over continuation bytes to a possible start of a character
  while (start > 0 && text.size() - start < 4 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  return char_at(text, start).n_bytes == text.size() - start ? start : text.size() - 1;
}

std::vector<std::string_view> split_chars(std::string_view text) {
  std::vector<std::string_view> chars;
  for (size_t i = 0; i < text.size();) {
    const size_t n = char_at(text, i).n_bytes;
    chars.push_back(text.substr(i, n));
    i += n;
  }
  return chars;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t i = 0; i < text.size();) {
    const Char c = char_at(text, i);
    const bool ends = (c.code >= '\n' && c.code <= '\r') || (c.code >= 0x1C && c.code <= 0x1E) || c.code == 0x85 ||
                      c.code == 0x2028 || c.code == 0x2029;
    const size_t line_end = i;
    i += c.n_bytes;
    if (!ends) continue;
    if (c.code == '\r' && i < text.size() && text[i] == '\n') ++i;
    lines.push_back(text.substr(start, (keep_ends ? i : line_end) - start));
    start = i;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

bool is_space(char32_t c) { return (c >= 0x1C && c <= 0x1F) || is_unicode_space(c); }

bool is_printable(char32_t c) {
  const utf8proc_category_t k = category(c);
  return c == ' ' || (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_SO);  // letters, marks, numbers, signs
}

bool is_alpha(char32_t c) {
  const utf8proc_category_t k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_word(char32_t c) {
  const utf8proc_category_t k = category(c);
  return c == '_' || is_alpha(c) || (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
}

bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }

bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const size_t at = find_in_linear_time(text.substr(from), needle);
  return at == std::string_view::npos ? at : from + at;
}

std::string_view strip(std::string_view text, const std::string_view* chars, bool left, bool right) {
  auto drops = [&](std::string_view one, char32_t code) {
    return chars == nullptr ? is_space(code) : chars->find(one) != std::string_view::npos;
  };
  while (left && !text.empty()) {
    const Char c = char_at(text, 0);
    if (!drops(text.substr(0, c.n_bytes), c.code)) break;
    text.remove_prefix(c.n_bytes);
  }
  while (right && !text.empty()) {
    const size_t start = last_char(text);
    if (!drops(text.substr(start), char_at(text, start).code)) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

std::string repeat(std::string_view text, size_t times) {
  std::string out;
  if (text.empty()) return out;
  out.reserve(text.size() * times);
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

std::string with_case(std::string_view text, Casing casing) {
  std::string out;
  out.reserve(text.size());
  bool after_cased = false, in_word = false;
  for (size_t i = 0; i < text.size();) {
    const Char c = char_at(text, i);
    const Casing to = case_of(casing, c.code, in_word, i == 0);
    if (c.code == kBadByte) {
      out += text.substr(i, c.n_bytes);
    } else if (to == Casing::kLower) {
      append_lower(out, text, i, c.code, after_cased);
    } else {
      append_upper(out, c.code, to == Casing::kTitle);
    }
    in_word = is_cased(c.code);
    if (!is_case_ignorable(c.code)) after_cased = in_word;
    i += c.n_bytes;
  }
  return out;
}

std::string html_escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  }
  return out;
}

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = static_cast<char>(c | 0x20);
  return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
}

std::optional<__int128> int_of_text(std::string_view text, int base) {
  const auto bare = bare_number(text);
  if (!bare || (base != 0 && (base < 2 || base > 36))) return std::nullopt;
  std::string_view digits = *bare;
  const bool negative = !digits.empty() && digits[0] == '-';
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) digits.remove_prefix(1);
  const char letter = digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : ' ';
  const int prefix = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
  if (prefix != 0 && (base == 0 || base == prefix)) digits.remove_prefix(2), base = prefix;
  if (base == 0) base = 10;
  __int128 value = 0;
  for (char c : digits) {
    if (digit_value(c) >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, __int128(base), &value) ||
        __builtin_add_overflow(value, __int128(digit_value(c)), &value)) {
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
