// What the tests of grammars ask of a machine.
#pragma once
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "text/grammar/automaton.h"

namespace ingot::testing {

// The bytes that can be read, and whether the text is whole then.
inline std::pair<size_t, bool> read(Automaton& machine, std::string_view text) {
  GrammarState state = machine.start();
  for (size_t i = 0; i < text.size(); ++i) {
    state = machine.step(state, static_cast<uint8_t>(text[i]));
    if (state.is_dead()) return {i, false};
  }
  return {text.size(), machine.accepts(state)};
}

inline bool accepts(Automaton& machine, std::string_view text) { return read(machine, text).second; }

// What `compile` throws.
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
