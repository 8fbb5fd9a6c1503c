// Reads GBNF, the notation of llama.cpp's grammars (see grammars/README.md there): one rule `name ::= ...` per line. A
// rule may continue on the next line inside parentheses and after `::=` and `|`.
#include <map>

#include "text/grammar/languages/char_set.h"
#include "text/grammar/rules/compile.h"
#include "text/grammar/rules/scanner.h"

namespace ingot {

namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class GbnfReader {
 public:
  explicit GbnfReader(std::string_view text) : text_(text) {}

  Grammar read() {
    skip_space(true);
    while (!text_.at_end()) read_rule();
    for (const auto& [rule, at] : first_use_) {
      if (!grammar_.is_defined(rule))
        text_.fail_at(at, fmt::format("the rule '{}' is not defined", grammar_.name(rule)));
    }
    const Grammar::Rule root = grammar_.rule("root");
    if (!grammar_.is_defined(root)) text_.fail_at(text_.at(), "there is no rule 'root', the start rule");
    grammar_.set_root(grammar_.refer(root));
    return std::move(grammar_);
  }

 private:
  using Part = Grammar::Part;

  void skip_space(bool over_lines) {
    while (true) {
      text_.take_while([&](char c) { return c == ' ' || c == '\t' || (over_lines && (c == '\n' || c == '\r')); });
      if (text_.peek() != '#') return;
      text_.take_while([](char c) { return c != '\n' && c != '\r'; });
    }
  }

  void read_rule() {
    const size_t begin = text_.at();
    const std::string_view name = text_.take_while(is_name_char);
    if (name.empty()) text_.expected("a rule name");
    skip_space(false);
    if (!text_.take("::=")) text_.expected("'::='");
    const Grammar::Rule rule = grammar_.rule(name);
    if (grammar_.is_defined(rule)) text_.fail_at(begin, fmt::format("the rule '{}' is defined twice", name));
    grammar_.define(rule, read_choice(0), text_.place(begin));
    const bool is_new_line = text_.at_end() || text_.peek() == '\n' || text_.peek() == '\r';
    if (!is_new_line) text_.expected("the end of the line, or a string, class, name or group");
    skip_space(true);
  }

  Part read_choice(int depth) {
    if (depth > GrammarScanner::kMaxDepth) text_.fail_at(text_.at(), "groups nest too deeply");
    std::vector<Part> choices;
    do {
      skip_space(true);
      choices.push_back(read_sequence(depth));
      if (const size_t end = text_.at(); depth == 0) {  // the next line may begin with '|'
        skip_space(true);
        if (text_.peek() != '|') text_.go_to(end);
      }
    } while (text_.take("|"));
    return grammar_.choice(std::move(choices));
  }

  Part read_sequence(int depth) {
    std::vector<Part> parts;
    while (true) {
      const char c = text_.peek();
      if (c == '"') {
        parts.push_back(read_string());
      } else if (c == '[') {
        parts.push_back(read_class());
      } else if (c == '.') {
        text_.take(".");
        parts.push_back(grammar_.language(grammar_.languages().any_char()));
      } else if (c == '(') {
        parts.push_back(read_group(depth));
      } else if (is_name_char(c)) {
        const size_t begin = text_.at();
        const Grammar::Rule rule = grammar_.rule(text_.take_while(is_name_char));
        first_use_.try_emplace(rule, begin);
        parts.push_back(grammar_.refer(rule));
      } else if (c == '<' || (c == '!' && text_.peek(1) == '<')) {
        text_.fail_at(text_.at(), "a token by name or number (<...>) is not supported: write its text");
      } else if (c == '*' || c == '+' || c == '?' || c == '{') {
        text_.fail_at(text_.at(), fmt::format("'{}' has nothing before it to repeat", c));
      } else {
        return grammar_.sequence(std::move(parts));
      }
      skip_space(depth > 0);
      while (read_repeat(parts.back())) skip_space(depth > 0);
    }
  }

  Part read_group(int depth) {
    text_.take("(");
    const Part part = read_choice(depth + 1);
    if (!text_.take(")")) text_.expected("')'");
    return part;
  }

  bool read_repeat(Part& part) {
    const auto repeat = text_.take_repeat([this] { skip_space(true); });
    if (repeat) part = grammar_.repeat(part, repeat->min, repeat->max);
    return repeat.has_value();
  }

  char32_t read_char() {
    if (text_.at_end()) text_.expected("a character");
    const size_t begin = text_.at();
    if (!text_.take("\\")) return text_.take_char();
    const char c = text_.peek();
    if (text_.at_end()) text_.expected("an escape");
    text_.take_char();
    switch (c) {
      case 'x': return text_.take_hex(2);
      case 'u': return text_.take_hex(4);
      case 'U': return text_.take_hex(8);
      case 't': return '\t';
      case 'r': return '\r';
      case 'n': return '\n';
      default: break;
    }
    if (c < '!' || c > '~' || (is_name_char(c) && c != '-')) text_.fail_at(begin, "this escape is not known");
    return static_cast<unsigned char>(c);
  }

  Part read_string() {
    text_.take("\"");
    std::string value;
    while (!text_.take("\"")) {
      if (text_.at_end() || text_.peek() == '\n') text_.expected("'\"'");
      utf8_append(value, read_char());
    }
    return grammar_.literal(value);
  }

  Part read_class() {
    const size_t begin = text_.at();
    text_.take("[");
    const bool is_inverted = text_.take("^");
    CharSet set;
    while (!text_.take("]")) {
      if (text_.at_end() || text_.peek() == '\n') text_.expected("']'");
      const size_t at = text_.at();
      const char32_t low = read_char();
      char32_t high = low;
      if (text_.peek() == '-' && text_.peek(1) != ']') {
        text_.take("-");
        high = read_char();
      }
      if (low > high) text_.fail_at(at, "the ends of a range are out of order");
      set.push_back({low, high});
    }
    if (set.empty()) text_.fail_at(begin, "a class without characters");
    return grammar_.language(grammar_.languages().characters(is_inverted ? inverted(set) : normalized(set)));
  }

  GrammarScanner text_;
  Grammar grammar_;
  std::map<Grammar::Rule, size_t> first_use_;  // where each rule's name first occurs
};

}  // namespace

Grammar read_gbnf(std::string_view text) { return GbnfReader(text).read(); }

}  // namespace ingot
