// RegexMachine: reads text that must match one regular language as a whole, with one derivative per byte.
#pragma once
#include <memory>

#include "text/grammar/languages/automaton.h"
#include "text/grammar/languages/regular.h"

namespace ingot {

class RegexMachine final : public Automaton {
 public:
  // Throws Error if no text belongs to `language`.
  RegexMachine(std::unique_ptr<RegularLanguages> languages, RegularLanguages::Id language);

  void use_meter(const SharedMeter& meter) override;
  size_t n_bytes() const override { return languages_->n_bytes(); }

  GrammarState start() override { return {kFirst + start_, 0, 0}; }
  GrammarState step(GrammarState state, uint8_t byte) override;
  bool accepts(GrammarState state) override { return !state.is_dead() && languages_->has_empty(state.place - kFirst); }
  // There are no words, because the place is the whole state already.

 private:
  static constexpr uint32_t kFirst = 3;  // place of the language 0

  std::unique_ptr<RegularLanguages> languages_;
  RegularLanguages::Id start_;
};

}  // namespace ingot
