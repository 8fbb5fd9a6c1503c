#include "text/jinja/syntax.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/jinja/text.h"
#include "text/tokenizers/unicode.h"

namespace ingot::jinja {
namespace {

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(const std::string& source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t tag = find_tag();
      if (tag == source_.size()) {
        data(at_, tag);
        move(tag);
      } else if (const size_t after_raw = raw_begin(tag)) {
        text_before(tag, false);
        raw_block(after_raw);
      } else {
        tagged(tag);
      }
    }
    push(TokenKind::kEnd, 0);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { jinja::fail(line_, column(), what); }
  int column() const { return static_cast<int>(at_ - line_start_) + 1; }

  // Moves forward to a byte, and counts the lines.
  void move(size_t to) {
    for (; at_ < to; ++at_) {
      if (source_[at_] != '\n') continue;
      ++line_;
      line_start_ = at_ + 1;
    }
  }
  void push(TokenKind kind, size_t n_bytes) {
    tokens_.push_back({kind, std::string_view(source_).substr(at_, n_bytes), line_, column()});
    move(at_ + n_bytes);
  }
  void data(size_t begin, size_t end) {
    if (begin < end)
      tokens_.push_back({TokenKind::kData, std::string_view(source_).substr(begin, end - begin), line_, column()});
  }

  bool has(size_t at, std::string_view text) const { return source_.compare(at, text.size(), text) == 0; }
  // The sign of a tag, '-' or '+'; a space for no sign.
  char sign_at(size_t at) const { return at < source_.size() && (has(at, "-") || has(at, "+")) ? source_[at] : ' '; }
  // Where the content of a tag begins.
  size_t inside(size_t tag) const { return tag + 2 + (sign_at(tag + 2) != ' '); }
  size_t skip_space(size_t at) const {
    while (at < source_.size()) {
      const Char c = char_at(source_, at);
      if (!is_space(c.code)) break;
      at += c.n_bytes;
    }
    return at;
  }

  size_t find_tag() const {
    for (size_t i = at_; (i = source_.find('{', i)) != std::string::npos; ++i) {
      if (i + 1 < source_.size() && std::string_view("%{#").find(source_[i + 1]) != std::string_view::npos) return i;
    }
    return source_.size();
  }

  // Adds the text before a tag. The sign of the tag decides which white space the text loses.
  void text_before(size_t tag, bool is_print) {
    std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    const char sign = sign_at(tag + 2);
    if (sign == '-') {
      text = strip(text, nullptr, false, true);
    } else if (sign != '+' && !is_print) {
      const size_t line = text.rfind('\n') + 1;
      const bool from_start = line > 0 || line_starting_;
      if (from_start && strip(text.substr(line), nullptr, true, false).empty()) text = text.substr(0, line);
    }
    data(at_, at_ + text.size());
    move(tag);
  }

  void tagged(size_t tag) {
    const char what = source_[tag + 1];
    text_before(tag, what == '{');
    if (what == '#') {
      comment(inside(tag));
    } else {
      push(what == '%' ? TokenKind::kBlockBegin : TokenKind::kPrintBegin, inside(tag) - tag);
      code(what == '%' ? '%' : '}');
    }
  }

  // Moves behind a tag whose closing characters ('%}', '#}', '}}') are at `end`. The sign in front of the characters
  // decides which white space after the tag is dropped: all for '-', none for '+', otherwise one newline. A tag that
  // prints keeps the newline.
  void finish_tag(size_t end, char sign, bool is_print = false) {
    size_t next = end + 2;
    if (sign == '-') {
      next = skip_space(next);
    } else if (sign != '+' && !is_print && next < source_.size() && source_[next] == '\n') {
      ++next;
    }
    finish(next);
  }
  void finish(size_t next) {
    move(next);
    line_starting_ = source_[next - 1] == '\n';
  }

  void comment(size_t body) {
    const size_t end = source_.find("#}", body);
    if (end == std::string::npos) fail("the comment {# has no end #}");
    finish_tag(end, end > body ? source_[end - 1] : ' ');
  }

  // Where the text of a raw block begins if the tag is {% raw %}, otherwise 0.
  size_t raw_begin(size_t tag) const {
    if (source_[tag + 1] != '%') return 0;
    size_t at = skip_space(inside(tag));
    if (!has(at, "raw")) return 0;
    at = skip_space(at + 3);
    if (has(at, "-%}")) return skip_space(at + 3);
    return has(at, "%}") ? at + 2 : 0;
  }

  void raw_block(size_t body) {
    finish(body);
    for (size_t tag = body; (tag = source_.find("{%", tag)) != std::string::npos; ++tag) {
      const size_t name = skip_space(inside(tag));
      if (!has(name, "endraw")) continue;
      const size_t at = skip_space(name + 6);
      const char sign = sign_at(at);
      const size_t end = at + (sign != ' ');
      if (!has(end, "%}")) continue;
      text_before(tag, false);
      return finish_tag(end, sign);
    }
    fail("{% raw %} has no {% endraw %}");
  }

  // Adds the tokens inside a tag that ends in `closing` and '}'.
  void code(char closing) {
    std::string brackets;
    while (true) {
      move(skip_space(at_));
      if (at_ >= source_.size()) return;  // the parser reports the unexpected end of the template
      if (brackets.empty() && tag_end(closing)) return;
      const char c = source_[at_];
      if (is_ascii_digit(c)) {
        number();
      } else if (c == '"' || c == '\'') {
        string(c);
      } else if (c == '_' || is_word(char_at(source_, at_).code)) {
        name();
      } else {
        symbol(brackets);
      }
    }
  }

  bool tag_end(char closing) {
    const bool is_print = closing == '}';
    const char sign = sign_at(at_);
    const size_t end = at_ + (sign != ' ');
    if ((is_print && sign == '+') || !has(end, is_print ? "}}" : "%}")) return false;
    tokens_.push_back({is_print ? TokenKind::kPrintEnd : TokenKind::kBlockEnd, std::string_view(source_).substr(end, 2),
                       line_, column()});
    finish_tag(end, sign, is_print);
    return true;
  }

  void name() {
    size_t end = at_;
    while (end < source_.size()) {
      const Char c = char_at(source_, end);
      if (!is_word(c.code)) break;
      end += c.n_bytes;
    }
    push(TokenKind::kName, end - at_);
  }

  void string(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("the string has no end");
    push(TokenKind::kString, end + 1 - at_);
  }

  // Digits of a base, with single underscores between them. Returns where they end (`from` if there are none).
  size_t digits(size_t from, int base, bool leading_underscore = false) const {
    auto is_digit = [&](size_t i) { return i < source_.size() && digit_value(source_[i]) < base; };
    size_t i = from;
    if (leading_underscore && i < source_.size() && source_[i] == '_') ++i;
    if (!is_digit(i)) return from;
    while (is_digit(i) || (i < source_.size() && source_[i] == '_' && is_digit(i + 1))) ++i;
    return i;
  }

  void number() {
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (const size_t end = after_dot ? 0 : float_end()) return push(TokenKind::kFloat, end - at_);
    if (source_[at_] == '0') {
      for (auto [letter, base] : {std::pair{'b', 2}, {'o', 8}, {'x', 16}}) {
        if (at_ + 1 >= source_.size() || (source_[at_ + 1] | 0x20) != letter) continue;
        const size_t end = digits(at_ + 2, base, true);
        if (end > at_ + 2) return push(TokenKind::kInteger, end - at_);
      }
      return push(TokenKind::kInteger, digits(at_, 1) - at_);  // 0, 00, 0_0: a digit after them begins another number
    }
    push(TokenKind::kInteger, digits(at_, 10) - at_);
  }

  // Where the float at this position ends, or 0 if there is no float: digits with a fraction, an exponent, or both.
  size_t float_end() const {
    size_t end = digits(at_, 10);
    bool is_float = false;
    if (end < source_.size() && source_[end] == '.') {
      const size_t fraction = digits(end + 1, 10);
      if (fraction > end + 1) end = fraction, is_float = true;
    }
    if (end < source_.size() && (source_[end] | 0x20) == 'e') {
      const size_t sign = end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-');
      const size_t exponent = digits(end + 1 + sign, 10);
      if (exponent > end + 1 + sign) end = exponent, is_float = true;
    }
    return is_float ? end : 0;
  }

  void symbol(std::string& brackets) {
    static constexpr std::string_view kOpen = "([{", kClose = ")]}", kSingle = "+-*/%~<>=.:|,;";
    for (std::string_view two : {"//", "**", "==", "!=", ">=", "<="}) {
      if (has(at_, two)) return push(TokenKind::kOperator, 2);
    }
    const char c = source_[at_];
    if (const size_t i = kOpen.find(c); i != std::string_view::npos) {
      brackets += kClose[i];
    } else if (kClose.find(c) != std::string_view::npos) {
      if (brackets.empty() || brackets.back() != c) fail(fmt::format("unexpected '{}'", c));
      brackets.pop_back();
    } else if (kSingle.find(c) == std::string_view::npos) {
      const std::string_view bad = std::string_view(source_).substr(at_, char_at(source_, at_).n_bytes);
      fail(fmt::format("unexpected character '{}'", printable(bad)));
    }
    push(TokenKind::kOperator, 1);
  }

  const std::string& source_;
  std::vector<Token> tokens_;
  size_t at_ = 0, line_start_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
};

// \xHH and similar escapes: exactly n hexadecimal digits.
char32_t hex_escape(const Token& token, std::string_view text, size_t at, size_t n) {
  char32_t code = 0;
  for (size_t i = at; i < at + n; ++i) {
    const int digit = i < text.size() ? digit_value(text[i]) : 99;
    if (digit > 15) fail(token.line, token.column, "a string has a cut \\x, \\u or \\U escape");
    code = code * 16 + static_cast<char32_t>(digit);
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
    fail(token.line, token.column, "a string names a character that does not exist");
  }
  return code;
}

}  // namespace

void fail(int line, int column, std::string_view what) {
  throw Error("template line {}, column {}: {}", line, column, what);
}

std::string normalized_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    out += source[i] == '\r' ? '\n' : source[i];
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

std::vector<Token> tokenize(const std::string& source) { return Lexer(source).run(); }

std::string unquote(const Token& token) {
  static constexpr std::string_view kLetters = "abfnrtv", kControls = "\a\b\f\n\r\t\v";
  const std::string_view text = token.text.substr(1, token.text.size() - 2);
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    if (const size_t named = kLetters.find(c); named != std::string_view::npos) {
      out += kControls[named];
    } else if (c == '\\' || c == '\'' || c == '"') {
      out += c;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      utf8_append(out, hex_escape(token, text, i + 1, n));
      i += n;
    } else if (c >= '0' && c <= '7') {
      char32_t code = 0;
      size_t n = 0;
      for (; n < 3 && i + n < text.size() && text[i + n] >= '0' && text[i + n] <= '7'; ++n) {
        code = code * 8 + static_cast<char32_t>(text[i + n] - '0');
      }
      utf8_append(out, code);
      i += n - 1;
    } else if (c == 'N') {
      fail(token.line, token.column, fmt::format("\\N{{...}} escapes are not supported"));
    } else if (c != '\n') {  // an escaped newline disappears; other escapes stay unchanged
      out += '\\';
      out += c;
    }
  }
  return out;
}

}  // namespace ingot::jinja
