#include "text/grammar/rules/compile.h"

#include "text/grammar/languages/regex.h"
#include "text/grammar/languages/regex_machine.h"
#include "text/grammar/rules/pushdown.h"

namespace ingot {

std::unique_ptr<Automaton> compile_grammar(Grammar grammar) {
  return std::make_unique<PushdownMachine>(std::move(grammar));
}
std::unique_ptr<Automaton> compile_gbnf(std::string_view text) { return compile_grammar(read_gbnf(text)); }
std::unique_ptr<Automaton> compile_lark(std::string_view text) { return compile_grammar(read_lark(text)); }

std::unique_ptr<Automaton> compile_regex(std::string_view pattern) {
  auto languages = std::make_unique<RegularLanguages>(1 << 18);
  languages->meter()->limit(WorkMeter::kMaxCompileWork);
  const RegularLanguages::Id language = parse_regex(*languages, pattern, RegexMatch::kWhole);
  auto machine = std::make_unique<RegexMachine>(std::move(languages), language);
  machine->meter().limit(SIZE_MAX);
  return machine;
}

}  // namespace ingot
