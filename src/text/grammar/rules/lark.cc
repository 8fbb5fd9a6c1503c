// Reads the notation of Lark, with two extensions of llguidance (%json, repetition in braces). A text matches if some
// way to cut the text into terminals matches, as with Lark's Earley parser and its dynamic_complete lexer. Priorities
// and aliases only choose between parse trees, so they are ignored. Regular expressions are those of ECMA 262.
#include <utf8proc.h>

#include <array>
#include <map>

#include "text/grammar/languages/char_set.h"
#include "text/grammar/machine/schema_machine.h"
#include "text/grammar/rules/compile.h"
#include "text/grammar/rules/scanner.h"

namespace ingot {

namespace {

#define DIGITS "[0-9]+"
#define DECIMAL_RULE "(?:" DIGITS "\\.[0-9]*|\\." DIGITS ")"
#define FLOAT_RULE "(?:" DIGITS "[eE][+-]?" DIGITS "|" DECIMAL_RULE "(?:[eE][+-]?" DIGITS ")?)"

// The library that `%import common` imports from.
constexpr std::array<std::pair<std::string_view, std::string_view>, 25> kCommon = {{
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9A-Fa-f]"},
    {"INT", DIGITS},
    {"SIGNED_INT", "[+-]?" DIGITS},
    {"DECIMAL", DECIMAL_RULE},
    {"FLOAT", FLOAT_RULE},
    {"SIGNED_FLOAT", "[+-]?" FLOAT_RULE},
    {"NUMBER", FLOAT_RULE "|" DIGITS},
    {"SIGNED_NUMBER", "[+-]?(?:" FLOAT_RULE "|" DIGITS ")"},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[A-Za-z]"},
    {"WORD", "[A-Za-z]+"},
    {"CNAME", "[_A-Za-z][_A-Za-z0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"SQL_COMMENT", "--[^\\n]*"},
    {"C_COMMENT", "/\\*(?:[^*]|\\*+[^*/])*\\*+/"},
    {"_STRING_INNER", "[^\\n]*"},
}};

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_lark_name_char(char c) { return is_lower(c) || is_upper(c) || (c >= '0' && c <= '9') || c == '_'; }
bool is_terminal(std::string_view name) {
  const size_t first = name.find_first_not_of('_');
  return first != std::string_view::npos && is_upper(name[first]);
}

class LarkReader {
 public:
  explicit LarkReader(std::string_view text) : text_(text), ignore_(grammar_.rule("%ignore")) {}

  Grammar read() {
    for (skip_space(true); !text_.at_end(); skip_space(true)) {
      if (text_.peek() == '%') {
        read_directive();
      } else {
        read_rule();
      }
      if (!text_.at_end() && text_.peek() != '\n' && text_.peek() != '\r') {
        text_.expected("the end of the line, or a string, expression, name or group");
      }
    }
    for (const auto& [rule, at] : first_use_) {
      if (!grammar_.is_defined(rule)) text_.fail_at(at, fmt::format("'{}' is not defined", grammar_.name(rule)));
    }
    grammar_.define(ignore_, grammar_.repeat(grammar_.choice(ignored_), 0, Grammar::kNoLimit));
    const Grammar::Rule start = grammar_.rule("start");
    if (!grammar_.is_defined(start)) text_.fail_at(text_.at(), "there is no rule 'start', the start rule");
    grammar_.set_root(grammar_.sequence({grammar_.refer(ignore_), grammar_.refer(start)}));
    return std::move(grammar_);
  }

 private:
  using Part = Grammar::Part;

  void skip_space(bool over_lines) {
    while (true) {
      text_.take_while([&](char c) { return c == ' ' || c == '\t' || (over_lines && (c == '\n' || c == '\r')); });
      if (text_.peek() != '#' && !text_.starts_with("//")) return;
      text_.take_while([](char c) { return c != '\n' && c != '\r'; });
    }
  }

  std::string_view take_name() {
    const std::string_view name = text_.take_while(is_lark_name_char);
    if (name.empty() || (name[0] >= '0' && name[0] <= '9')) text_.expected("a name");
    return name;
  }

  void define(std::string_view name, size_t at, Part body) {
    const Grammar::Rule rule = grammar_.rule(name);
    if (grammar_.is_defined(rule)) text_.fail_at(at, fmt::format("'{}' is defined twice", name));
    grammar_.define(rule, body, text_.place(at));
  }

  void read_rule() {
    const size_t begin = text_.at();
    text_.take_while([](char c) { return c == '?' || c == '!'; });
    const std::string_view name = take_name();
    if (text_.take(".")) text_.take_number();
    skip_space(false);
    if (text_.peek() == '{') text_.fail_at(text_.at(), "templates of rules are not supported");
    if (text_.peek() == '[') text_.fail_at(text_.at(), "attributes of rules are not supported");
    if (!text_.take(":")) text_.expected("':'");
    in_terminal_ = is_terminal(name);
    define(name, begin, read_choice(0));
  }

  void read_directive() {
    const size_t begin = text_.at();
    if (text_.take("%ignore")) {
      in_terminal_ = true;
      ignored_.push_back(read_choice(0));
    } else if (text_.take("%import")) {
      read_import();
    } else if (text_.take("%llguidance")) {
      skip_space(false);
      if (!text_.take("{}")) text_.expected("'{}' (no option of llguidance is supported)");
    } else {
      text_.take("%");
      const std::string_view name = text_.take_while(is_lark_name_char);
      text_.fail_at(begin, fmt::format("'%{}' is not supported here", printable(name)));
    }
    skip_space(false);
  }

  void read_import() {
    skip_space(false);
    if (!text_.take("common")) text_.expected("'common', the only library that can be imported,");
    skip_space(false);
    if (text_.take("(")) {
      do {
        skip_space(true);
        import_common("");
        skip_space(true);
      } while (text_.take(","));
      if (!text_.take(")")) text_.expected("')'");
    } else {
      if (!text_.take(".")) text_.expected("'.'");
      import_common("->");
    }
  }

  void import_common(std::string_view arrow) {
    const size_t begin = text_.at();
    const std::string_view name = take_name();
    std::string_view alias = name;
    skip_space(false);
    if (!arrow.empty() && text_.take(arrow)) {
      skip_space(false);
      alias = take_name();
    }
    for (auto [known, pattern] : kCommon) {
      if (known == name) return define(alias, begin, grammar_.regex(pattern));
    }
    text_.fail_at(begin, fmt::format("the library 'common' has no '{}'", name));
  }

  Part read_choice(int depth) {
    if (depth > GrammarScanner::kMaxDepth) text_.fail_at(text_.at(), "groups nest too deeply");
    std::vector<Part> choices;
    do {
      choices.push_back(read_sequence(depth));
      const size_t end = text_.at();  // the next line may begin with '|'
      skip_space(true);
      if (text_.peek() != '|' && depth == 0) text_.go_to(end);
    } while (text_.take("|"));
    return grammar_.choice(std::move(choices));
  }

  Part read_sequence(int depth) {
    std::vector<Part> parts;
    for (skip_space(depth > 0); read_item(parts, depth); skip_space(depth > 0)) {
      while (read_repeat(parts.back())) {}
    }
    if (text_.take("->")) {
      skip_space(false);
      take_name();
      skip_space(false);
    }
    return grammar_.sequence(std::move(parts));
  }

  bool read_item(std::vector<Part>& parts, int depth) {
    const char c = text_.peek();
    const size_t begin = text_.at();
    if (c == '"') {
      parts.push_back(terminal(read_string()));
    } else if (c == '/') {
      parts.push_back(terminal(read_regex()));
    } else if (c == '(' || c == '[') {
      text_.take_char();
      Part part = read_choice(depth + 1);
      if (!text_.take(c == '(' ? ")" : "]")) text_.expected(c == '(' ? "')'" : "']'");
      parts.push_back(c == '(' ? part : grammar_.repeat(part, 0, 1));
    } else if (text_.take("%json")) {
      parts.push_back(terminal(read_schema()));
    } else if (is_lark_name_char(c)) {
      parts.push_back(read_reference());
    } else if (c == '<') {
      text_.fail_at(begin, "a token by name or number (<...>) is not supported: write its text");
    } else if (c == '*' || c == '+' || c == '?' || c == '~' || c == '{') {
      text_.fail_at(begin, fmt::format("'{}' has nothing before it to repeat", c));
    } else {
      return false;
    }
    return true;
  }

  // Ignored text may follow each terminal of a rule.
  Part terminal(Part part) { return in_terminal_ ? part : grammar_.sequence({part, grammar_.refer(ignore_)}); }

  Part read_reference() {
    const size_t begin = text_.at();
    const std::string_view name = take_name();
    if (in_terminal_ && !is_terminal(name))
      text_.fail_at(begin, fmt::format("a terminal cannot contain the rule '{}'", name));
    const Grammar::Rule rule = grammar_.rule(name);
    first_use_.try_emplace(rule, begin);
    const Part part = grammar_.refer(rule);
    return is_terminal(name) ? terminal(part) : part;
  }

  bool read_repeat(Part& part) {
    const size_t begin = text_.at();
    skip_space(false);
    const auto repeat = text_.take("~") ? read_tilde(begin) : text_.take_repeat([this] { skip_space(false); });
    if (!repeat) {
      text_.go_to(begin);
      return false;
    }
    part = grammar_.repeat(part, repeat->min, repeat->max);
    return true;
  }

  // ~ n, or ~ n..m
  std::optional<GrammarScanner::Repeat> read_tilde(size_t begin) {
    GrammarScanner::Repeat repeat;
    skip_space(false);
    repeat.min = repeat.max = text_.take_number();
    skip_space(false);
    if (text_.take("..")) {
      skip_space(false);
      repeat.max = text_.take_number();
    }
    text_.check_order(repeat, begin);
    return repeat;
  }

  char32_t read_char() {
    if (text_.at_end() || text_.peek() == '\n') text_.expected("'\"'");
    const size_t begin = text_.at();
    if (!text_.take("\\")) return text_.take_char();
    for (auto [name, c] : {std::pair{"n", '\n'},
                           {"t", '\t'},
                           {"r", '\r'},
                           {"f", '\f'},
                           {"v", '\v'},
                           {"\\", '\\'},
                           {"\"", '"'},
                           {"'", '\''},
                           {"/", '/'}}) {
      if (text_.take(name)) return static_cast<unsigned char>(c);
    }
    if (text_.take("x")) return text_.take_hex(2);
    if (text_.take("u")) return text_.take_hex(4);
    if (text_.take("U")) return text_.take_hex(8);
    text_.fail_at(begin, "this escape is not known");
  }

  std::u32string read_quoted() {
    if (!text_.take("\"")) text_.expected("'\"'");
    std::u32string value;
    while (!text_.take("\"")) value += read_char();
    return value;
  }

  Part read_string() {
    const size_t begin = text_.at();
    const std::u32string value = read_quoted();
    if (text_.take("..")) {
      const std::u32string last = read_quoted();
      if (value.size() != 1 || last.size() != 1 || value > last)
        text_.fail_at(begin, "a range must go from one character to a later character");
      const CharRange range{value[0], last[0]};
      return grammar_.language(grammar_.languages().characters({&range, 1}));
    }
    if (text_.peek() != 'i' || is_lark_name_char(text_.peek(1))) {
      std::string bytes;
      for (char32_t c : value) utf8_append(bytes, c);
      return grammar_.literal(bytes);
    }
    text_.take("i");
    std::vector<Part> parts;
    for (char32_t c : value) {
      const auto upper = static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
      const auto lower = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
      parts.push_back(
          grammar_.language(grammar_.languages().characters(normalized({{c, c}, {upper, upper}, {lower, lower}}))));
    }
    return grammar_.sequence(std::move(parts));
  }

  Part read_regex() {
    const size_t begin = text_.at();
    text_.take("/");
    std::string pattern, dotted;  // in `dotted`, a dot matches line ends too
    bool in_class = false;
    while (!text_.take("/")) {
      if (text_.at_end() || text_.peek() == '\n') text_.expected("'/'");
      const char c = text_.peek();
      in_class = c == '[' || (in_class && c != ']');
      const size_t n = c == '\\' && text_.peek(1) != '\n' ? 2 : 1;
      pattern += text_.rest().substr(0, n);
      dotted += c == '.' && !in_class ? "[^]" : text_.rest().substr(0, n);
      text_.go_to(text_.at() + std::min(n, text_.rest().size()));
    }
    const size_t flags_at = text_.at();
    const std::string_view flags = text_.take_while(is_lower);
    if (flags.find_first_not_of("smu") != std::string_view::npos) {
      text_.fail_at(flags_at,
                    fmt::format("the regular expression has the flags '{}': only s, m and u are supported", flags));
    }
    try {
      return grammar_.regex(flags.find('s') == std::string_view::npos ? pattern : dotted);
    } catch (const Error& error) {
      text_.fail_at(begin, error.what());
    }
  }

  // Reads the schema after %json: the JSON text up to the matching closing brace.
  Part read_schema() {
    skip_space(true);
    const size_t begin = text_.at();
    if (text_.peek() != '{') text_.expected("'{'");
    int depth = 0;
    bool in_string = false;
    size_t n = 0;
    const std::string_view json = text_.rest();
    do {
      if (n >= json.size()) text_.fail_at(begin, "this JSON object does not end");
      const char c = json[n++];
      if (c == '"') in_string = !in_string;
      if (c == '\\') ++n;
      if (!in_string) depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    } while (depth > 0);
    text_.go_to(begin + n);
    try {
      return grammar_.embed(compile_schema(json.substr(0, n), {}, {}));
    } catch (const Error& error) {
      text_.fail_at(begin, error.what());
    }
  }

  GrammarScanner text_;
  Grammar grammar_;
  Grammar::Rule ignore_;
  std::vector<Part> ignored_;
  std::map<Grammar::Rule, size_t> first_use_;  // where each rule's name first occurs
  bool in_terminal_ = false;
};

}  // namespace

Grammar read_lark(std::string_view text) { return LarkReader(text).read(); }

}  // namespace ingot
