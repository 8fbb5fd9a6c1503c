// ingot grammar check: checks texts against a schema, a regular expression or a grammar, without a model.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iostream>

#include "base/error.h"
#include "base/json.h"
#include "cli/options/commands.h"
#include "cli/options/grammar.h"
#include "text/json_value.h"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;

struct CheckOptions {
  GrammarOptions grammar;
  std::string jsonl;
  bool json = false, ordered = false;
};

struct Verdict {
  bool accepted = false;
  size_t n_read = 0;  // bytes before the refused byte, or all bytes
};

Verdict check(Automaton& automaton, std::string_view text) {
  GrammarState state = automaton.start();
  for (size_t i = 0; i < text.size(); ++i) {
    automaton.meter().limit(WorkMeter::kMaxWork);  // as for a token of an answer
    state = automaton.step(state, static_cast<uint8_t>(text[i]));
    if (state.is_dead()) return {false, i};
  }
  return {automaton.accepts(state), text.size()};
}

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

struct Summary {
  int n_schemas = 0, n_passed = 0, n_refused = 0, n_invalid_accepted = 0, n_valid_rejected = 0;
};

// Compares a schema's verdicts on its instances with the expected verdicts. "passed": all verdicts are correct.
JsonValue check_case(const GrammarCase& one, const CheckOptions& o, Summary& summary) {
  JsonValue result = JsonValue::object();
  ++summary.n_schemas;
  const Clock::time_point begin = Clock::now();
  try {
    std::vector<std::string> warnings;
    const GrammarText text{.kind = GrammarKind::kSchema,
                           .text = one.schema,
                           .any_order = !o.ordered,
                           .is_lenient = o.grammar.is_lenient,
                           .deep_indents = true};
    const auto automaton = compile(text, &warnings);
    result["compile_us"] = us_since(begin);
    if (!warnings.empty()) result["warnings"] = warnings;
    result["verdicts"] = JsonValue::array();
    int n_wrong = 0;
    const Clock::time_point first = Clock::now();
    for (const GrammarCase::Instance& test : one.tests) {
      const bool accepted = check(*automaton, test.data).accepted;
      result["verdicts"].push_back(accepted);
      summary.n_invalid_accepted += accepted && !test.valid;
      summary.n_valid_rejected += !accepted && test.valid;
      n_wrong += accepted != test.valid;
    }
    result["step_us"] = us_since(first);
    result["passed"] = n_wrong == 0;
    summary.n_passed += n_wrong == 0;
  } catch (const Error& error) {
    ++summary.n_refused;
    result["refused"] = error.what();
  }
  return result;
}

bool check_cases(const CheckOptions& o) {
  Summary summary;
  for (const GrammarCase& one : read_grammar_cases(o.jsonl))
    fmt::print("{}\n", check_case(one, o, summary).dump(-1, ' ', false, JsonValue::error_handler_t::replace));
  const JsonValue closing = {{"schemas", summary.n_schemas},
                        {"passed", summary.n_passed},
                        {"refused", summary.n_refused},
                        {"invalid_accepted", summary.n_invalid_accepted},
                        {"valid_rejected", summary.n_valid_rejected}};
  fmt::print("{}\n", closing.dump());
  return summary.n_invalid_accepted + summary.n_valid_rejected == 0;
}

bool check_lines(const CheckOptions& o) {
  std::optional<GrammarText> grammar = grammar_text(o.grammar);
  if (!grammar) throw UsageError("grammar check needs --json-schema, --regex, --grammar or --jsonl");
  grammar->any_order = !o.ordered;
  grammar->deep_indents = true;
  const Clock::time_point begin = Clock::now();
  const auto automaton = compile_option(*grammar);
  const double compile_us = us_since(begin);
  bool all = true;
  for (std::string line; std::getline(std::cin, line);) {
    const Clock::time_point first = Clock::now();
    const Verdict verdict = check(*automaton, line);
    all = all && verdict.accepted;
    if (o.json) {
      const JsonValue result = {{"accepted", verdict.accepted},
                           {"n_read", verdict.n_read},
                           {"compile_us", compile_us},
                           {"step_us", us_since(first)}};
      fmt::print("{}\n", result.dump());
    } else if (verdict.accepted) {
      fmt::print("accepted\n");
    } else if (verdict.n_read == line.size()) {
      fmt::print("rejected: the text ends too early\n");
    } else {
      fmt::print("rejected at byte {}\n", verdict.n_read);
    }
  }
  return all;
}

}  // namespace

void add_grammar(CLI::App& app) {
  CLI::App* command = app.add_subcommand("grammar", "Test schemas, regular expressions and grammars without a model");
  command->require_subcommand(1);
  auto o = std::make_shared<CheckOptions>();
  CLI::App* check = command->add_subcommand("check", "Check the lines of standard input, or the texts of test cases");
  add_grammar_options(*check, o->grammar);
  auto* jsonl =
      check->add_option("--jsonl", o->jsonl,
                        "file of test cases, one per line: {\"schema\": ..., \"tests\": [{\"data\": ..., \"valid\": "
                        "true}]}; - for standard input; prints a JSON line for each case, and a summary");
  for (const char* flag : {"--json-schema", "--regex", "--grammar"}) jsonl->excludes(check->get_option(flag));
  check->add_flag("--json", o->json, "print a JSON line for each text")->excludes(jsonl);
  check->add_flag("--ordered", o->ordered, "require object members in the schema's order, as models write them");
  check->footer(
      "Exit code 1: a text was rejected, or the verdict on a test is not the expected one.\nExamples:\n"
      "  echo '{\"a\": 1}' | ingot grammar check --json-schema '{\"required\": [\"a\"]}'\n"
      "  ingot grammar check --jsonl cases.jsonl\n"
      "  ingot grammar check --lenient-schema --json-schema @schema.json < answers.txt");
  check->callback([o] {
    if (!(o->jsonl.empty() ? check_lines(*o) : check_cases(*o))) throw CLI::RuntimeError(1);
  });
}

}  // namespace ingot
