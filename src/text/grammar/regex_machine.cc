#include "text/grammar/regex_machine.h"

#include "base/error.h"

namespace ingot {

RegexMachine::RegexMachine(std::unique_ptr<RegularLanguages> languages, RegularLanguages::Id language)
    : languages_(std::move(languages)), start_(language) {
  if (!languages_->is_live(language)) throw Error("the regular expression matches no text at all");
}

GrammarState RegexMachine::step(GrammarState state, uint8_t byte) {
  if (state.is_dead()) return {};
  const RegularLanguages::Id next = languages_->row(state.place - kFirst)[byte];
  return next == RegularLanguages::kNothing ? GrammarState{} : GrammarState{kFirst + next, 0, 0};
}

}  // namespace ingot
