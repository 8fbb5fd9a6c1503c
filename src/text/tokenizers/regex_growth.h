// Can an expression match one text in exponentially many ways? A backtracking engine tries them all before it gives up,
// so '(a+)+$' would run for years on sixty letters. The reader of tokenizer.json asks this of every expression in a file, through
// TextRegex; what is only polynomial passes, and has the engine's own limit on steps.
//
// The expression becomes an automaton without empty moves (Glushkov's: a state for each character or class in it).
// There are exponentially many ways exactly if, within a loop, two different paths lead from a state to a state over
// the same characters (Weber and Seidl, "On the degree of ambiguity of finite automata", 1991). What looks around is
// checked by itself and rules nothing out, and that atomic groups never go back counts only where a loop around them
// repeats what they do: so some expressions are refused that are harmless.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace ingot {

// What an expression for one character matches: a bit for each code point, of as many as are looked at.
using CharactersOf = std::function<std::vector<uint64_t>(std::string_view)>;

// `pattern` is in PCRE2's syntax, and PCRE2 has compiled it. Throws Error for one that can match in exponentially many
// ways, and for one that is too large to tell, or has what goes beyond regular expressions (references to groups,
// recursion).
void refuse_exponential(std::string_view pattern, const CharactersOf& characters_of);

}  // namespace ingot
