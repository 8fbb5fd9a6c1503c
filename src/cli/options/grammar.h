// --json-schema, --regex and --grammar: the grammar of an answer. Also reads test cases: schemas with instances, one
// JSON line each.
#pragma once
#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "text/answers/answer_model.h"
#include "text/grammar/masks/model_grammars.h"

namespace ingot {

struct GrammarOptions {
  std::string schema, regex, grammar;  // the text; for a schema or a grammar also @FILE
  bool is_lenient = false, any_order = false;
};
void add_grammar_options(CLI::App& app, GrammarOptions& options);
// --lenient-schema and --any-order: how to read schemas.
void add_lenient_option(CLI::App& app, bool& is_lenient);
void add_order_option(CLI::App& app, bool& any_order);

// Empty if no flag is set. Throws UsageError for a file that cannot be read.
std::optional<GrammarText> grammar_text(const GrammarOptions& options);
// Calls compile(). Its errors become a UsageError that names the flag; its warnings go to standard error.
std::unique_ptr<Automaton> compile_option(const GrammarText& grammar);
// The grammar that the flags ask for. Compiles it once, so that errors and warnings come before a model is loaded.
std::optional<WantedGrammar> wanted_grammar(const GrammarOptions& options);

// {"schema": ..., "tests": [{"data": ..., "valid": true}]}, with the texts exactly as in the line.
struct GrammarCase {
  struct Instance {
    std::string data;
    bool valid = true;
  };
  std::string schema;
  std::vector<Instance> tests;
};
GrammarCase read_grammar_case(std::string_view line, const std::string& source);
std::vector<GrammarCase> read_grammar_cases(const std::string& path);  // "-": standard input

}  // namespace ingot
