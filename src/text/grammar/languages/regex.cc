#include "text/grammar/languages/regex.h"

#include <map>
#include <memory>
#include <string>

#include "base/error.h"
#include "text/grammar/languages/char_set.h"
#include "text/tokenizers/unicode.h"

namespace ingot {

namespace {

using Id = RegularLanguages::Id;

constexpr int kMaxGroupDepth = 200;  // of nested groups
constexpr int kMaxRepeat = 65535;   // in {n,m}
constexpr size_t kMaxPatternBytes = 1 << 16;

struct Term;
using Terms = std::vector<Term>;           // a sequence
struct Term {
  enum class Kind { kChars, kGroup, kStart, kEnd, kAhead, kNotAhead };
  Kind kind = Kind::kChars;
  Id chars = 0;
  std::vector<Terms> choices;  // for groups and look-aheads
  int min = 1, max = 1;        // repetitions; max may be kNoLimit
};

class Parser {
 public:
  Parser(RegularLanguages& languages, std::string_view pattern) : languages_(languages), pattern_(pattern) {}

  std::vector<Terms> parse() {
    std::vector<Terms> choices = parse_choices(0);
    if (at_ < pattern_.size()) fail("')' has no '('");
    return choices;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw Error("the regular expression '{}': {} at byte {}", printable(pattern_), what, at_);
  }
  bool at_end() const { return at_ >= pattern_.size(); }
  char peek() const { return at_end() ? '\0' : pattern_[at_]; }
  bool take(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t take_char() {
    if (at_end()) fail("the expression ends too early");
    const char32_t c = utf8_decode(pattern_.substr(at_));
    std::string bytes;
    utf8_append(bytes, c);
    at_ += bytes.size();
    return c;
  }

  std::vector<Terms> parse_choices(int depth) {
    if (depth > kMaxGroupDepth) fail("groups nest too deeply");
    std::vector<Terms> choices(1);
    while (!at_end() && peek() != ')') {
      if (take("|")) {
        choices.emplace_back();
        continue;
      }
      Term term = parse_term(depth);
      parse_repeat(term);
      choices.back().push_back(std::move(term));
    }
    return choices;
  }

  Term parse_term(int depth) {
    if (take("^")) return {Term::Kind::kStart};
    if (take("$")) return {Term::Kind::kEnd};
    if (take(".")) return chars(inverted(line_ends()));
    if (take("[")) return chars(parse_class());
    if (take("(")) return parse_group(depth);
    if (take("\\")) return parse_escape();
    if (peek() == '*' || peek() == '+' || peek() == '?') fail("nothing to repeat");
    const char32_t c = take_char();
    return chars({{c, c}});
  }

  Term chars(const CharSet& set) {
    const auto [it, is_new] = chars_.try_emplace(set, 0);  // patterns repeat the same classes often
    if (is_new) it->second = languages_.characters(set);
    return {Term::Kind::kChars, it->second};
  }

  Term parse_group(int depth) {
    Term term{Term::Kind::kGroup};
    if (take("?=")) {
      term.kind = Term::Kind::kAhead;
    } else if (take("?!")) {
      term.kind = Term::Kind::kNotAhead;
    } else if (take("?<=") || take("?<!")) {
      fail("look-behind is not supported");
    } else if (take("?<") || take("?P<")) {
      while (!at_end() && peek() != '>') ++at_;
      if (!take(">")) fail("the group's name does not end");
    } else if (!take("?:") && take("?")) {
      fail("this kind of group is not supported");
    }
    term.choices = parse_choices(depth + 1);
    if (!take(")")) fail("a ')' is missing");
    return term;
  }

  int parse_number() {
    const size_t begin = at_;
    int value = 0;
    while (peek() >= '0' && peek() <= '9') {
      value = value * 10 + (pattern_[at_++] - '0');
      if (value > kMaxRepeat) fail("a repetition of more than 65535");
    }
    return at_ == begin ? -1 : value;
  }

  // A brace that is not a quantifier is an ordinary character, as in browsers.
  void parse_repeat(Term& term) {
    int min = 1, max = 1;
    const size_t begin = at_;
    if (take("*")) {
      min = 0, max = RegularLanguages::kNoLimit;
    } else if (take("+")) {
      max = RegularLanguages::kNoLimit;
    } else if (take("?")) {
      min = 0;
    } else if (take("{")) {
      min = max = parse_number();
      if (take(",")) max = parse_number();
      if (min < 0 || !take("}")) {
        at_ = begin;
        return;
      }
      if (max >= 0 && max < min) fail("the bounds of a repetition are out of order");
    } else {
      return;
    }
    if (!take("?")) take("+");  // lazy or possessive: the language is the same
    if (term.kind != Term::Kind::kChars && term.kind != Term::Kind::kGroup) fail("an assertion cannot be repeated");
    term.min = min;
    term.max = max;
    if (peek() == '*' || peek() == '+' || peek() == '?') fail("nothing to repeat");
  }

  char32_t parse_hex(int n_digits) {
    char32_t value = 0;
    for (int i = 0; i < n_digits; ++i) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail("a hexadecimal digit is missing");
      value = value * 16 + static_cast<char32_t>(digit);
      ++at_;
    }
    return value;
  }

  char32_t parse_code_point() {
    if (take("{")) {
      char32_t value = 0;
      while (!at_end() && peek() != '}') {
        value = value * 16 + parse_hex(1);
        if (value > 0x10ffff) fail("a code point above U+10FFFF");
      }
      if (!take("}")) fail("a '}' is missing");
      return value;
    }
    const char32_t high = parse_hex(4);
    if (high < 0xd800 || high > 0xdbff || !take("\\u")) return high;
    const char32_t low = parse_hex(4);
    if (low < 0xdc00 || low > 0xdfff) fail("half of a surrogate pair");
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
  }

  // The set of characters that an escape matches. For a single character, also sets *single.
  CharSet parse_class_escape(char32_t* single) {
    const auto one = [&](char32_t c) {
      *single = c;
      return CharSet{{c, c}};
    };
    if (at_end()) fail("a backslash at the end");
    const char c = peek();
    switch (c) {
      case 'd': ++at_; return digit_chars();
      case 'D': ++at_; return inverted(digit_chars());
      case 'w': ++at_; return word_chars();
      case 'W': ++at_; return inverted(word_chars());
      case 's': ++at_; return space_chars();
      case 'S': ++at_; return inverted(space_chars());
      case 't': ++at_; return one('\t');
      case 'n': ++at_; return one('\n');
      case 'r': ++at_; return one('\r');
      case 'f': ++at_; return one('\f');
      case 'v': ++at_; return one('\v');
      case '0': ++at_; return one('\0');
      case 'x': ++at_; return one(parse_hex(2));
      case 'u': ++at_; return one(parse_code_point());
      case 'c': ++at_; return one(take_char() % 32);
      case 'p':
      case 'P': {
        ++at_;
        if (!take("{")) fail("'{' is missing after \\p");
        const size_t end = pattern_.find('}', at_);
        if (end == std::string_view::npos) fail("a '}' is missing");
        const CharSet set = property_chars(pattern_.substr(at_, end - at_));
        if (set.empty()) fail("this property of characters is not known");
        at_ = end + 1;
        return c == 'p' ? set : inverted(set);
      }
      default: return one(take_char());
    }
  }

  Term parse_escape() {
    const char c = peek();
    if (c == 'b' || c == 'B') fail("word boundaries are not supported");
    if ((c >= '1' && c <= '9') || c == 'k') fail("back references are not supported, because they are not regular");
    if (take("A")) return {Term::Kind::kStart};
    if (take("Z") || take("z")) return {Term::Kind::kEnd};
    char32_t single = 0;
    return chars(parse_class_escape(&single));
  }

  CharSet parse_class() {
    const bool is_inverted = take("^");
    CharSet set;
    const auto element = [&](char32_t* single) -> CharSet {
      *single = UINT32_MAX;
      if (!take("\\")) {
        *single = take_char();
        return {{*single, *single}};
      }
      if (take("b")) return {{*single = '\b', '\b'}};
      return parse_class_escape(single);
    };
    while (!take("]")) {
      if (at_end()) fail("a ']' is missing");
      char32_t low = 0, high = 0;
      const CharSet first = element(&low);
      set.insert(set.end(), first.begin(), first.end());
      if (peek() != '-' || pattern_.substr(at_).starts_with("-]")) continue;
      ++at_;
      const CharSet second = element(&high);
      set.insert(set.end(), second.begin(), second.end());
      if (low == UINT32_MAX || high == UINT32_MAX) {
        set.push_back({'-', '-'});  // a class cannot be the end of a range, so the hyphen is an ordinary character
      } else if (low > high) {
        fail("the ends of a range are out of order");
      } else {
        set.push_back({low, high});
      }
    }
    return is_inverted ? inverted(set) : normalized(std::move(set));
  }

  RegularLanguages& languages_;
  std::string_view pattern_;
  std::map<CharSet, Id> chars_;
  size_t at_ = 0;
};

// Builds languages from the last term to the first. Each term gets the language of the text after it, because
// assertions constrain that text.
class Builder {
 public:
  explicit Builder(RegularLanguages& languages) : languages_(languages) {}

  // The texts that match `choices` and continue with a text of `rest`. at_start: no text comes before.
  Id build(const std::vector<Terms>& choices, Id rest, bool at_start) {
    std::vector<Id> parts;
    for (const Terms& terms : choices) parts.push_back(build(terms, rest, at_start));
    return languages_.any_of(std::move(parts));
  }

 private:
  static bool has_assertion(const std::vector<Terms>& choices) {
    for (const Terms& terms : choices) {
      for (const Term& term : terms) {
        if (term.kind == Term::Kind::kChars) continue;
        if (term.kind != Term::Kind::kGroup || has_assertion(term.choices)) return true;
      }
    }
    return false;
  }

  Id build(const Terms& terms, Id rest, bool at_start) {
    std::vector<bool> starts(terms.size());
    for (size_t i = 0; i < terms.size(); ++i) {
      starts[i] = at_start;
      at_start = at_start && (terms[i].kind != Term::Kind::kChars && terms[i].kind != Term::Kind::kGroup);
    }
    for (size_t i = terms.size(); i-- > 0;) rest = build(terms[i], rest, starts[i]);
    return rest;
  }

  Id build(const Term& term, Id rest, bool at_start) {
    switch (term.kind) {
      case Term::Kind::kStart: return at_start ? rest : RegularLanguages::kNothing;
      case Term::Kind::kEnd:
        return languages_.has_empty(rest) ? RegularLanguages::kEmpty : RegularLanguages::kNothing;
      case Term::Kind::kAhead: return languages_.all_of({ahead(term, at_start), rest});
      case Term::Kind::kNotAhead: return languages_.all_of({languages_.complement(ahead(term, at_start)), rest});
      case Term::Kind::kChars: return languages_.concat(languages_.repeat(term.chars, term.min, term.max), rest);
      case Term::Kind::kGroup: break;
    }
    if (term.min == 1 && term.max == 1) return build(term.choices, rest, at_start);
    if (term.min == 0 && term.max == 1) return languages_.any_of({rest, build(term.choices, rest, at_start)});
    if (has_assertion(term.choices))
      throw Error("the regular expression has an assertion inside a repetition, which is not supported");
    const Id one = build(term.choices, RegularLanguages::kEmpty, false);
    return languages_.concat(languages_.repeat(one, term.min, term.max), rest);
  }

  Id ahead(const Term& term, bool at_start) { return build(term.choices, RegularLanguages::kAnything, at_start); }

  RegularLanguages& languages_;
};

}  // namespace

Id parse_regex(RegularLanguages& languages, std::string_view pattern, RegexMatch match) {
  if (pattern.size() > kMaxPatternBytes)
    throw Error("the regular expression has {} bytes: at most {}", pattern.size(), kMaxPatternBytes);
  if (!is_valid_utf8(pattern)) throw Error("the regular expression is not UTF-8");
  const std::vector<Terms> choices = Parser(languages, pattern).parse();
  Builder builder(languages);
  if (match == RegexMatch::kWhole) return builder.build(choices, RegularLanguages::kEmpty, true);
  const Id text = languages.any_text();
  const Id here = builder.build(choices, text, true), later = builder.build(choices, text, false);
  const Id shifted = languages.concat(languages.repeat(languages.any_char(), 1, RegularLanguages::kNoLimit), later);
  return languages.any_of({here, shifted});
}

}  // namespace ingot
