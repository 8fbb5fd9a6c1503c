// Cuts a template into text and tokens by jinja2's rules: trim_blocks, lstrip_blocks, the signs '-' and '+' at tags,
// raw blocks and comments. The parser works on the complete list of tokens.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace ingot::jinja {

enum class TokenKind {
  kData,
  kPrintBegin,
  kPrintEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind;
  std::string_view text;  // of the source; a string keeps its quotes
  int line, column;       // from 1
};

// The source with \r\n and \r replaced by \n, and without one newline at its end. The tokens point into this string.
std::string normalized_source(std::string_view source);

// Throws Error for input that jinja2's lexer refuses: an unclosed comment, raw block or string, or unmatched brackets.
std::vector<Token> tokenize(const std::string& source);

// The value of a string token, without quotes and with escapes replaced.
std::string unquote(const Token& token);

// "line 3, column 7"
std::string position(int line, int column);

}  // namespace ingot::jinja
