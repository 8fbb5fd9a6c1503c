// Strings as Python sees them: sequences of code points, with str's own ideas of white space, lines and case. Text
// comes from requests, so a byte that is not well-formed UTF-8 is let through as one character that no rule touches.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::jinja {

struct Char {
  char32_t code;  // kBadByte for an ill-formed byte
  size_t n_bytes;
};
inline constexpr char32_t kBadByte = 0x110000;

Char char_at(std::string_view text, size_t byte);
size_t count_chars(std::string_view text);
// The byte where character `index` starts; the size of the text when there are fewer.
size_t byte_of_char(std::string_view text, size_t index);
std::vector<std::string_view> split_chars(std::string_view text);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

bool is_space(char32_t c);      // str.isspace
bool is_printable(char32_t c);  // str.isprintable
bool is_alpha(char32_t c);
bool is_digit(char32_t c);  // also what str.isdecimal and isnumeric have in common
bool is_word(char32_t c);   // \w of re: alphanumeric or underscore
bool is_upper(char32_t c);
bool is_lower(char32_t c);

// The first place of needle at or after `from`, or npos; linear in time whatever the strings are.
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);

// Without the characters of `chars` (white space when null) at the chosen ends.
std::string_view strip(std::string_view text, const std::string_view* chars, bool left, bool right);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);        // str.title
std::string to_capitalized(std::string_view text);  // str.capitalize
std::string swap_case(std::string_view text);
std::string html_escape(std::string_view text);

}  // namespace ingot::jinja
