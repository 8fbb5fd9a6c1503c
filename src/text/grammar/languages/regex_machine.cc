#include "text/grammar/languages/regex_machine.h"

#include "base/error.h"

namespace ingot {

RegexMachine::RegexMachine(std::unique_ptr<RegularLanguages> languages, RegularLanguages::Id language)
    : languages_(std::move(languages)), start_(language) {
  meter_.share(languages_->meter());
  if (!languages_->is_live(language)) throw Error("the regular expression matches no text at all");
}

void RegexMachine::use_meter(const SharedMeter& meter) {
  meter_.share(meter);
  languages_->use_meter(meter_);
}

GrammarState RegexMachine::step(GrammarState state, uint8_t byte) {
  if (state.is_dead()) return {};
  const RegularLanguages::Id next = languages_->row(state.place - kFirst)[byte];
  return next == RegularLanguages::kNothing ? GrammarState{} : GrammarState{kFirst + next, 0, 0};
}

}  // namespace ingot
