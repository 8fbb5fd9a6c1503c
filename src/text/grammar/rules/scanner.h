// GrammarScanner: a cursor over the text of a grammar, which reports errors with their line and column.
#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizers/unicode.h"

namespace ingot {

class GrammarScanner {
 public:
  explicit GrammarScanner(std::string_view text) : text_(text) {
    if (text.size() > kMaxBytes) throw Error("the grammar has {} bytes: at most {}", text.size(), kMaxBytes);
    for (size_t at = 0; at < text.size();) {
      const Utf8Step step = utf8_step(text.substr(at));
      if (!step.ok) fail_at(at, "this is not UTF-8");
      if (text[at] == '\0') fail_at(at, "a NUL character");
      at += step.length;
    }
  }
  static constexpr size_t kMaxBytes = size_t{256} << 10;
  static constexpr int kMaxRepeat = 65535;  // limit of n and m in {n,m}
  static constexpr int kMaxDepth = 256;     // limit for nested groups
  static constexpr int kNoLimit = -1;       // no upper limit of repetitions

  size_t at() const { return at_; }
  void go_to(size_t at) { at_ = at; }
  bool at_end() const { return at_ >= text_.size(); }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  std::string_view rest() const { return text_.substr(at_); }
  bool starts_with(std::string_view text) const { return rest().starts_with(text); }
  bool take(std::string_view text) {
    if (!starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  template <class Belongs>
  std::string_view take_while(const Belongs& belongs) {
    const size_t begin = at_;
    while (!at_end() && belongs(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  char32_t take_char() {
    const char32_t c = utf8_decode(rest());
    at_ += c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    return c;
  }
  // Reads a code point of n_digits hexadecimal digits.
  char32_t take_hex(int n_digits) {
    char32_t value = 0;
    for (int i = 0; i < n_digits; ++i, ++at_) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) expected("a hexadecimal digit");
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
      fail_at(at_, "this number is not a Unicode code point");
    return value;
  }
  int take_number() {
    if (peek() < '0' || peek() > '9') expected("a number");
    int value = 0;
    while (peek() >= '0' && peek() <= '9') {
      value = value * 10 + (text_[at_++] - '0');
      if (value > kMaxRepeat) fail_at(at_, fmt::format("a repetition of more than {}", kMaxRepeat));
    }
    return value;
  }

  // How often the previous part repeats: *, +, ?, {n}, {n,}, {,m} or {n,m}; empty if none of these follows. `skip`
  // skips the white space that is allowed between the braces.
  struct Repeat {
    int min = 0, max = kNoLimit;
  };
  template <class Skip>
  std::optional<Repeat> take_repeat(const Skip& skip) {
    const size_t begin = at_;
    if (take("*")) return Repeat{};
    if (take("+")) return Repeat{1, kNoLimit};
    if (take("?")) return Repeat{0, 1};
    if (!take("{")) return std::nullopt;
    Repeat repeat;
    skip();
    if (peek() != ',') repeat.min = repeat.max = take_number();
    skip();
    if (take(",")) {
      skip();
      repeat.max = peek() == '}' ? kNoLimit : take_number();
      skip();
    }
    if (!take("}")) expected("'}'");
    check_order(repeat, begin);
    return repeat;
  }
  void check_order(const Repeat& repeat, size_t at) const {
    if (repeat.max != kNoLimit && repeat.max < repeat.min)
      fail_at(at, "the bounds of a repetition are out of order");
  }

  // "the grammar, line 3, column 1"
  std::string place(size_t at) const {
    const std::string_view before = text_.substr(0, at);
    const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
    size_t column = 1;
    for (char c : before.substr(line_start)) column += (c & 0xc0) != 0x80;
    return fmt::format("the grammar, line {}, column {}", std::ranges::count(before, '\n') + 1, column);
  }
  [[noreturn]] void fail_at(size_t at, std::string_view what) const { throw Error("{}: {}", place(at), what); }
  [[noreturn]] void expected(std::string_view what) const {
    const size_t n = at_end() ? 0 : std::max<size_t>(1, utf8_length(rest()));
    fail_at(at_, n == 0 ? fmt::format("{} is expected, but the text ends", what)
                        : fmt::format("{} is expected, not '{}'", what, printable(rest().substr(0, n))));
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace ingot
