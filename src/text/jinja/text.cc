#include "text/jinja/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

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

enum class Case { kUpper, kLower, kTitle };

void append_cased(std::string& out, std::string_view text, size_t at, Char c, Case to, bool after_cased) {
  if (c.code == kBadByte) {
    out += text.substr(at, c.n_bytes);
  } else if (to == Case::kLower) {
    if (c.code == 0x130) {
      out += "i\xCC\x87";
    } else if (c.code == 0x3A3) {
      utf8_append(out, is_final_sigma(text, at, after_cased) ? 0x3C2 : 0x3C3);
    } else {
      utf8_append(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code))));
    }
  } else {
    auto found =
        std::find_if(std::begin(kLongCases), std::end(kLongCases), [&](const LongCase& l) { return l.code == c.code; });
    const auto code = static_cast<utf8proc_int32_t>(c.code);
    if (found != std::end(kLongCases)) {
      out += to == Case::kUpper ? found->upper : found->title;
    } else {
      utf8_append(out, static_cast<char32_t>(to == Case::kUpper ? utf8proc_toupper(code) : utf8proc_totitle(code)));
    }
  }
}

// Maps each character to the case that choose(character, follows a cased one, is the first) selects.
template <class Choose>
std::string map_case(std::string_view text, Choose choose) {
  std::string out;
  out.reserve(text.size());
  bool after_cased = false, word = false;
  for (size_t i = 0; i < text.size();) {
    const Char c = char_at(text, i);
    append_cased(out, text, i, c, choose(c.code, word, i == 0), after_cased);
    word = is_cased(c.code);
    if (!is_case_ignorable(c.code)) after_cased = word;
    i += c.n_bytes;
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
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return c == ' ';
    default: return true;
  }
}

bool is_alpha(char32_t c) {
  const utf8proc_category_t k = category(c);
  return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT ||
         k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_word(char32_t c) {
  const utf8proc_category_t k = category(c);
  return c == '_' || is_alpha(c) || k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
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
    size_t start = text.size() - 1;  // back over continuation bytes to a possible start of a character
    while (start > 0 && text.size() - start < 4 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    if (char_at(text, start).n_bytes != text.size() - start) start = text.size() - 1;
    if (!drops(text.substr(start), char_at(text, start).code)) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

std::string to_upper(std::string_view text) {
  return map_case(text, [](char32_t, bool, bool) { return Case::kUpper; });
}

std::string to_lower(std::string_view text) {
  return map_case(text, [](char32_t, bool, bool) { return Case::kLower; });
}

std::string to_title(std::string_view text) {
  return map_case(text, [](char32_t, bool in_word, bool) { return in_word ? Case::kLower : Case::kTitle; });
}

std::string to_capitalized(std::string_view text) {
  return map_case(text, [](char32_t, bool, bool first) { return first ? Case::kTitle : Case::kLower; });
}

std::string swap_case(std::string_view text) {
  return map_case(text, [](char32_t c, bool, bool) { return is_upper(c) ? Case::kLower : Case::kUpper; });
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

}  // namespace ingot::jinja
