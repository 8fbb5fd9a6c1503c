// Strings as in Python: sequences of code points, with str's rules for white space, lines and case. Text comes from
// requests, so a byte that is not well-formed UTF-8 counts as one character to which no rule applies.
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
// The byte offset of character `index`; the size of the text if there are fewer characters.
size_t byte_of_char(std::string_view text, size_t index);
std::vector<std::string_view> split_chars(std::string_view text);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

bool is_space(char32_t c);      // str.isspace
bool is_printable(char32_t c);  // str.isprintable
bool is_alpha(char32_t c);
bool is_digit(char32_t c);  // the digits that both str.isdecimal and str.isnumeric accept
bool is_word(char32_t c);   // \w of re: alphanumeric or underscore
bool is_upper(char32_t c);
bool is_lower(char32_t c);

// The first position of needle at or after `from`, or npos. Takes linear time for any strings.
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);

// Removes the characters of `chars` (white space if null) at the chosen ends.
std::string_view strip(std::string_view text, const std::string_view* chars, bool left, bool right);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);        // str.title
std::string to_capitalized(std::string_view text);  // str.capitalize
std::string swap_case(std::string_view text);
std::string html_escape(std::string_view text);

}  // namespace ingot::jinja
