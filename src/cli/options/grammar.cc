#include "cli/options/grammar.h"

#include <fstream>
#include <functional>
#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

namespace ingot {
namespace {

// The end of the value that begins at i. The text must be valid JSON.
size_t value_end(std::string_view text, size_t i) {
  const auto string_end = [&](size_t at) {
    for (++at; text[at] != '"'; ++at) at += text[at] == '\\';
    return at + 1;
  };
  if (text[i] == '"') return string_end(i);
  if (text[i] != '{' && text[i] != '[') return std::min(text.find_first_of(",]} \t\r\n", i), text.size());
  for (int depth = 0; i < text.size();) {
    if (text[i] == '"') {
      i = string_end(i);
      continue;
    }
    depth += text[i] == '{' || text[i] == '[';
    depth -= text[i] == '}' || text[i] == ']';
    ++i;
    if (depth == 0) break;
  }
  return i;
}

// Calls `each` with the name (empty in an array) and the text of each member. The text must be valid JSON.
void for_members(std::string_view text,
                 const std::function<void(std::string_view name, std::string_view value)>& each) {
  constexpr const char* kBetween = " \t\r\n,:";
  const bool is_object = text[0] == '{';
  for (size_t i = text.find_first_not_of(kBetween, 1); i < text.size() - 1; i = text.find_first_not_of(kBetween, i)) {
    std::string_view name;
    if (is_object) {
      const size_t end = value_end(text, i);
      name = text.substr(i + 1, end - i - 2);
      i = text.find_first_not_of(kBetween, end);
    }
    const size_t end = value_end(text, i);
    each(name, text.substr(i, end - i));
    i = end;
  }
}

std::string text_or_file(const std::string& given, const char* flag) {
  if (!given.starts_with("@")) return given;
  try {
    return read_file(given.substr(1), size_t{1} << 26);
  } catch (const Error& error) {
    throw UsageError("{}: {}", flag, error.what());
  }
}

const char* flag_of(GrammarKind kind) {
  return kind == GrammarKind::kSchema ? "--json-schema" : kind == GrammarKind::kRegex ? "--regex" : "--grammar";
}

}  // namespace

void add_grammar_options(CLI::App& app, GrammarOptions& o) {
  auto* schema =
      app.add_option("--json-schema", o.schema, "require JSON that follows this schema (its text, or @FILE)");
  auto* regex = app.add_option("--regex", o.regex, "require text that this regular expression matches as a whole");
  auto* grammar =
      app.add_option("--grammar", o.grammar, "require text of this GBNF or Lark grammar (its text, or @FILE)");
  schema->excludes(regex)->excludes(grammar);
  regex->excludes(grammar);
  for (CLI::Option* option : {schema, regex, grammar}) option->type_name("TEXT");
  add_lenient_option(app, o.is_lenient);
}

void add_lenient_option(CLI::App& app, bool& is_lenient) {
  app.add_flag("--lenient-schema", is_lenient,
               "ignore parts of a schema that cannot be enforced, with a warning; otherwise they are errors");
}

void add_order_option(CLI::App& app, bool& any_order) {
  app.add_flag("--any-order", any_order, "allow object members in any order, instead of the schema's order");
}

std::optional<GrammarText> grammar_text(const GrammarOptions& o) {
  if (!o.schema.empty())
    return GrammarText{GrammarKind::kSchema, text_or_file(o.schema, "--json-schema"), o.any_order, o.is_lenient};
  if (!o.regex.empty()) return GrammarText{GrammarKind::kRegex, o.regex};
  if (!o.grammar.empty()) return GrammarText{GrammarKind::kGrammar, text_or_file(o.grammar, "--grammar")};
  return std::nullopt;
}

std::unique_ptr<Automaton> compile_option(const GrammarText& grammar) {
  try {
    std::vector<std::string> warnings;
    auto automaton = compile(grammar, &warnings);
    for (const std::string& warning : warnings) log_warn("{}: {}", flag_of(grammar.kind), warning);
    return automaton;
  } catch (const Error& error) {
    throw UsageError("{}: {}", flag_of(grammar.kind), error.what());
  }
}

std::optional<WantedGrammar> wanted_grammar(const GrammarOptions& o) {
  const std::optional<GrammarText> grammar = grammar_text(o);
  if (!grammar) return std::nullopt;
  compile_option(*grammar);
  return WantedGrammar{*grammar, flag_of(grammar->kind)};
}

GrammarCase read_grammar_case(std::string_view line, const std::string& source) {
  line = line.substr(std::min(line.size(), line.find_first_not_of(" \t\r\n")));
  if (!nlohmann::json::accept(line) || !line.starts_with("{")) throw Error("{}: expected a JSON object", source);
  GrammarCase result;
  for_members(line, [&](std::string_view name, std::string_view value) {
    if (name == "schema") result.schema = value;
    if (name != "tests" || !value.starts_with("[")) return;
    for_members(value, [&](std::string_view, std::string_view test) {
      if (!test.starts_with("{")) throw Error("{}: expected an object in \"tests\"", source);
      GrammarCase::Instance one;
      for_members(test, [&](std::string_view member, std::string_view text) {
        if (member == "data") one.data = text;
        if (member == "valid") one.valid = text == "true";
      });
      if (one.data.empty()) throw Error("{}: \"data\" is missing in a test", source);
      result.tests.push_back(std::move(one));
    });
  });
  if (result.schema.empty()) throw Error("{}: \"schema\" is missing", source);
  return result;
}

std::vector<GrammarCase> read_grammar_cases(const std::string& path) {
  std::ifstream file;
  if (path != "-") {
    file.open(path);
    if (!file) throw Error("{}: cannot be opened", printable(path));
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::vector<GrammarCase> cases;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    cases.push_back(read_grammar_case(line, fmt::format("{}:{}", printable(path), number)));
  }
  return cases;
}

}  // namespace ingot
