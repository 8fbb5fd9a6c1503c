// Checks whether an expression can match one text in exponentially many ways. A backtracking engine tries all ways
// before it fails, so '(a+)+$' would run for years on sixty letters. The reader of tokenizer.json checks every
// expression of a file, through TextRegex. Expressions of polynomial time pass; the engine's own limit on steps applies
// to them.
//
// The expression becomes an automaton without empty moves (Glushkov's: a state for each character or class in it).
// There are exponentially many ways exactly if, within a loop, two different paths over the same characters connect the
// same two states (Weber and Seidl, "On the degree of ambiguity of finite automata", 1991). Lookarounds are checked
// separately; the check does not use them to exclude ways. Atomic groups never backtrack, but the check uses this only
// for loops around an atomic group. So the check also refuses some harmless expressions.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace ingot {

// The characters that an expression for one character matches: a bit for each code point that is checked.
using CharactersOf = std::function<std::vector<uint64_t>(std::string_view)>;

// `pattern` is in PCRE2's syntax, and PCRE2 has compiled it. Throws Error if it can match in exponentially many ways,
// if it is too large to check, or if it has constructs beyond regular expressions (references to groups, recursion).
void refuse_exponential(std::string_view pattern, const CharactersOf& characters_of);

}  // namespace ingot
