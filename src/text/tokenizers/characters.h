// Unicode properties of characters, for the normalizers of tokenizers: normal forms, case, general categories, white
// space.
#pragma once
#include <string>
#include <string_view>

namespace ingot {

// Unicode's normal forms. Ill-formed sequences stay unchanged, and characters do not combine across them.
enum class NormalForm { kC, kD, kKC, kKD };
std::string normalize(std::string_view text, NormalForm form);

// Appends the lower case of a character by Unicode's rules without context (U+0130 becomes two characters).
void append_lowercase(std::string& out, char32_t c);

bool is_nonspacing_mark(char32_t c);  // category Mn
bool is_mark(char32_t c);             // Mn, Mc, Me
bool is_control_like(char32_t c);     // Cc, Cf, Co

// leading_space: the length of the white space at the start of text. without_trailing_space: text without the white
// space at its end.
size_t leading_space(std::string_view text);
std::string_view without_trailing_space(std::string_view text);

}  // namespace ingot
