// Compiles the text of a constraint into a machine that reads bytes. compile_schema is in schema_machine.h. All
// functions throw Error, which says what is wrong with the text and where.
#pragma once
#include <memory>
#include <string_view>

#include "text/grammar/languages/automaton.h"
#include "text/grammar/rules/grammar.h"

namespace ingot {

Grammar read_gbnf(std::string_view text);
Grammar read_lark(std::string_view text);

std::unique_ptr<Automaton> compile_grammar(Grammar grammar);
std::unique_ptr<Automaton> compile_gbnf(std::string_view text);
std::unique_ptr<Automaton> compile_lark(std::string_view text);
std::unique_ptr<Automaton> compile_regex(std::string_view pattern);  // ECMA 262; the pattern must match the whole text

}  // namespace ingot
