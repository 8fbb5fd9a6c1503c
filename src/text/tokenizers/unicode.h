// Unicode helpers for the tokenizers and templates: UTF-8 in and out, repair of ill-formed UTF-8, and GPT-2's spelling
// of bytes as printable characters. base/utf8.h defines well-formed UTF-8.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace ingot {

// U+2581, which stands for a space in the tokens of SentencePiece.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

// True if every sequence is well-formed.
bool is_valid_utf8(std::string_view text);

// The length of the longest well-formed prefix of text.
size_t valid_utf8_prefix(std::string_view text);

// The code point at the front of text, which must begin with a well-formed sequence.
char32_t utf8_decode(std::string_view text);

// Appends a code point; it must be a scalar value (not a surrogate, at most U+10FFFF).
void utf8_append(std::string& out, char32_t c);

// Each maximal subpart of an ill-formed sequence becomes one U+FFFD, as the WHATWG Encoding Standard and Python's
// errors="replace" do.
std::string replace_invalid_utf8(std::string_view text);

// The number of bytes (0 to 3) at the end of text that begin a sequence which more bytes could complete.
size_t utf8_incomplete_tail(std::string_view text);

// Unicode's White_Space property.
bool is_unicode_space(char32_t c);

// GPT-2's spelling writes each byte of a token as one character: printable Latin-1 bytes as themselves, others as
// U+0100 and up.
std::string gpt2_from_bytes(std::string_view bytes);

// The inverse. Returns nothing if text is not UTF-8 or has a character outside of the map.
std::optional<std::string> bytes_from_gpt2(std::string_view text);

}  // namespace ingot
