#include "text/tokenizers/oniguruma.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace ingot {
namespace {

// Oniguruma's \w is Unicode's (UTS #18): alphabetic, marks, decimal digits, connectors. PCRE2's \w differs. The ranges
// are alphabetic symbols, that is, letters in circles and squares. Outside of a class, \w also has the superscript
// digits and fractions of Latin-1.
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
constexpr std::string_view kLatin1Numbers = R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";
constexpr std::string_view kSameEscapes = "sSdDrntfAzx";
constexpr std::string_view kGroups[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"};

bool is_punctuation(char c) {
  return static_cast<unsigned char>(c) < 0x80 && c > ' ' && !std::isalnum(static_cast<unsigned char>(c));
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string translate() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        class_character(c);
      } else {
        character(c);
      }
    }
    return std::move(out_);
  }

 private:
  void class_character(char c) {
    if (c == '[') fail("a class within a class");
    if (rest().starts_with("&&")) fail("an intersection of classes (&&)");
    if (c == ']') in_class_ = false;
    copy(1);
  }

  void character(char c) {
    if (c == '^' || c == '$') {  // in Ruby: of each line
      out_ += c == '^' ? "(?m:^)" : "(?m:$)";
      ++at_;
    } else if (c == '(' && rest().starts_with("(?")) {
      const auto group =
          std::find_if(std::begin(kGroups), std::end(kGroups), [&](auto g) { return rest().starts_with(g); });
      if (group == std::end(kGroups)) fail("a group that begins with '" + std::string(rest().substr(0, 4)) + "'");
      copy(group->size());
    } else if (rest().starts_with("}+")) {
      fail("'+' after a count");
    } else if (rest().starts_with("{,")) {
      out_ += "{0,";
      at_ += 2;
    } else {
      if (c == '[') in_class_ = true;
      copy(c == '[' && rest().starts_with("[^") ? 2 : 1);
    }
  }

  void escape() {
    if (at_ + 1 == pattern_.size()) fail("a backslash at its end");
    const char c = pattern_[at_ + 1];
    if (c == 'p' || c == 'P') {
      property();
    } else if (c == 'u') {
      const std::string_view digits = rest().substr(2, 4);
      if (digits.size() != 4 ||
          !std::all_of(digits.begin(), digits.end(), [](unsigned char d) { return std::isxdigit(d); }))
        fail("\\u without four digits");
      out_ += fmt::format("\\x{{{}}}", digits);
      at_ += 6;
    } else if (c == 'h') {
      out_ += in_class_ ? "0-9A-Fa-f" : "[0-9A-Fa-f]";
      at_ += 2;
    } else if (c == 'w') {
      out_ += in_class_ ? std::string(kWord) : fmt::format("[{}{}]", kWord, kLatin1Numbers);
      at_ += 2;
    } else if (c == 'W' && !in_class_) {
      out_ += fmt::format("[^{}{}]", kWord, kLatin1Numbers);
      at_ += 2;
    } else if (c == 'v') {
      out_ += "\\x0b";
      at_ += 2;
    } else if (kSameEscapes.find(c) != kSameEscapes.npos || is_punctuation(c)) {
      copy(2);
    } else {
      fail(fmt::format("'\\{}'", c));
    }
  }

  // \p{L}, \p{^Lu}, \p{Han}: names of more than two letters are scripts; PCRE2 would read them as script extensions.
  void property() {
    const size_t end = rest().find('}');
    if (!rest().substr(2).starts_with('{') || end == std::string_view::npos) fail("'\\p' without braces");
    std::string_view name = rest().substr(3, end - 3);
    const bool negated = name.starts_with('^');
    name.remove_prefix(negated);
    if (name.size() <= 2) return copy(end + 1);
    const bool excludes = (pattern_[at_ + 1] == 'P') != negated;
    out_ += fmt::format("\\{}{{sc:{}}}", excludes ? 'P' : 'p', name);
    at_ += end + 1;
  }

  std::string_view rest() const { return pattern_.substr(at_); }
  void copy(size_t n) {
    out_ += pattern_.substr(at_, n);
    at_ += n;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw Error("the expression '{}' has {} at {}, which is not supported", printable(pattern_), printable(what), at_);
  }

  std::string_view pattern_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

std::string pcre2_from_oniguruma(std::string_view pattern) { return Translator(pattern).translate(); }

std::string pcre2_from_literal(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (is_punctuation(c)) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace ingot
