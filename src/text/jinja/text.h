// Strings as in Python: sequences of code points, with str's rules for white space, lines and case. Numbers as int()
// and float() read them. Text comes from requests, so a byte that is not well-formed UTF-8 counts as one character to
// which no rule applies.
#pragma once
#include <cstddef>
#include <optional>
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
size_t last_char(std::string_view text);  // where the last character begins; the text is not empty
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

std::string repeat(std::string_view text, size_t times);
// str.upper, lower, title, capitalize and swapcase.
enum class Casing { kUpper, kLower, kTitle, kCapitalized, kSwapped };
std::string with_case(std::string_view text, Casing casing);
std::string html_escape(std::string_view text);

// int(text, base) and float(text). Return nothing for text that Python refuses.
std::optional<__int128> int_of_text(std::string_view text, int base);
std::optional<double> float_of_text(std::string_view text);
int digit_value(char c);  // 0 to 35 for digits and letters, otherwise 99

// Rounds to `digits` decimals; halves of the exact binary value round to even.
double round_float(double value, int digits);

}  // namespace ingot::jinja
