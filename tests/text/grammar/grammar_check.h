// Helpers for the tests of grammars.
#pragma once
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "text/grammar/languages/automaton.h"

namespace ingot::testing {

// The number of bytes that the machine reads, and whether the text is complete then.
inline std::pair<size_t, bool> read(Automaton& machine, std::string_view text) {
  GrammarState state = machine.start();
  for (size_t i = 0; i < text.size(); ++i) {
    state = machine.step(state, static_cast<uint8_t>(text[i]));
    if (state.is_dead()) return {i, false};
  }
  return {text.size(), machine.accepts(state)};
}

inline bool accepts(Automaton& machine, std::string_view text) { return read(machine, text).second; }

// The message of the Error that `compile` throws.
template <class Compile>
std::string error_of(const Compile& compile) {
  try {
    compile();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace ingot::testing
