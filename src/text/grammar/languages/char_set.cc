#include "text/grammar/languages/char_set.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <string>

#include "text/tokenizers/unicode.h"

namespace ingot {

namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 37> kLongNames = {{
    {"Letter", "L"}, {"Uppercase_Letter", "Lu"}, {"Lowercase_Letter", "Ll"}, {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"}, {"Other_Letter", "Lo"}, {"Mark", "M"}, {"Nonspacing_Mark", "Mn"},
    {"Spacing_Mark", "Mc"}, {"Enclosing_Mark", "Me"}, {"Number", "N"}, {"Decimal_Number", "Nd"}, {"digit", "Nd"},
    {"Letter_Number", "Nl"}, {"Other_Number", "No"}, {"Punctuation", "P"}, {"punct", "P"},
    {"Connector_Punctuation", "Pc"}, {"Dash_Punctuation", "Pd"}, {"Open_Punctuation", "Ps"},
    {"Close_Punctuation", "Pe"}, {"Initial_Punctuation", "Pi"}, {"Final_Punctuation", "Pf"},
    {"Other_Punctuation", "Po"}, {"Symbol", "S"}, {"Math_Symbol", "Sm"}, {"Currency_Symbol", "Sc"},
    {"Modifier_Symbol", "Sk"}, {"Other_Symbol", "So"}, {"Separator", "Z"}, {"Space_Separator", "Zs"},
    {"Line_Separator", "Zl"}, {"Paragraph_Separator", "Zp"}, {"Other", "C"}, {"Control", "Cc"}, {"Format", "Cf"},
    {"Private_Use", "Co"},
}};

template <class Belongs>
CharSet chars_where(Belongs belongs) {
  CharSet set;
  for (char32_t c = 0; c <= 0x10ffff; ++c) {
    if (c == 0xd800) c = 0xe000;
    if (!belongs(c)) continue;
    if (!set.empty() && set.back().second + 1 == c) {
      set.back().second = c;
    } else {
      set.push_back({c, c});
    }
  }
  return set;
}

}  // namespace

CharSet normalized(CharSet set) {
  std::ranges::sort(set);
  CharSet out;
  for (auto [low, high] : set) {
    if (!out.empty() && low <= out.back().second + 1) {
      out.back().second = std::max(out.back().second, high);
    } else {
      out.push_back({low, high});
    }
  }
  return out;
}

CharSet inverted(const CharSet& set) {
  CharSet all = normalized(set), out;
  all = normalized([&] { all.push_back({0xd800, 0xdfff}); return all; }());
  char32_t next = 0;
  for (auto [low, high] : all) {
    if (low > next) out.push_back({next, low - 1});
    next = high + 1;
  }
  if (next <= 0x10ffff) out.push_back({next, 0x10ffff});
  return out;
}

CharSet digit_chars() { return {{'0', '9'}}; }
CharSet word_chars() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }
CharSet space_chars() {
  return {{9, 13}, {32, 32}, {0xa0, 0xa0}, {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f},
          {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
}
CharSet line_ends() { return {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}; }

CharSet property_chars(std::string_view name) {
  for (std::string_view prefix : {"gc=", "General_Category="}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  if (name == "Any") return {{0, 0xd7ff}, {0xe000, 0x10ffff}};
  if (name == "ASCII") return {{0, 127}};
  if (name == "White_Space") return chars_where(is_unicode_space);
  for (auto [full, brief] : kLongNames) {
    if (name == full) name = brief;
  }
  if (name == "Alphabetic" || name == "Alpha") name = "L";
  if (name.empty() || name.size() > 2) return {};
  return chars_where([&](char32_t c) {
    return std::string_view(utf8proc_category_string(static_cast<utf8proc_int32_t>(c))).starts_with(name);
  });
}

}  // namespace ingot
