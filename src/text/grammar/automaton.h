// What a grammar is to those who fill masks: a machine that reads bytes. A state is small and may be kept and compared;
// what it stands for is made when it is first reached. Machines are not safe for use by several threads at once.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/splitmix.h"

namespace ingot {

// `place`: where in a word, or between words; 0: no text goes on from here. `frame`: what the place is inside of.
// `text`: what was read, where a rule will ask for it.
struct GrammarState {
  uint32_t place = 0, frame = 0, text = 0;
  bool is_dead() const { return place == 0; }
  bool operator==(const GrammarState&) const = default;
};

class Automaton {
 public:
  virtual ~Automaton() = default;
  // Until the next call, steps throw Error where they need more work than that: counted, not measured, so that
  // the result does not depend on the machine. Without a call there is no limit.
  virtual void limit_work(size_t) {}
  virtual size_t n_bytes() const { return 0; }  // that the machine has grown to, about

  virtual GrammarState start() = 0;
  // The state after `byte`. Dead where no text of the grammar goes on so.
  virtual GrammarState step(GrammarState state, uint8_t byte) = 0;
  virtual bool accepts(GrammarState state) = 0;  // the text may end here

  // Words (strings, numbers, names) are read by places alone, whatever they stand in. kWordEnds: the byte ends the
  // word and belongs to it; kWordOver: the word has ended before this byte.
  static constexpr uint32_t kDead = 0, kWordEnds = 1, kWordOver = 2;
  virtual bool is_word(uint32_t place) const = 0;
  virtual uint32_t step_word(uint32_t place, uint8_t byte) = 0;
  // The place is in a JSON string and not in an escape: nothing but a quote ends the word, and a quote does nothing else.
  virtual bool is_string(uint32_t) const { return false; }
  // Whatever characters follow, as many as there are: the string stays open. False where that is not known.
  virtual bool allows_any_text(uint32_t) const { return false; }
  // What follows a word that ends at `state`; equal outcomes, equal states after it.
  virtual uint32_t word_outcome(uint32_t place) = 0;
  virtual GrammarState end_word(GrammarState state) = 0;
  // The characters that a word may still have, any of them: at least first, at most second (-1: no limit). first < 0:
  // it is not that kind of word.
  virtual std::pair<int, int> free_chars(uint32_t place) const = 0;
  // A free word may end as one of these texts, which then is something else than free: what follows the place up to the
  // end, and the place there. `free_place`: the place of the same word once it cannot be any of them.
  struct KnownEnd {
    std::string text;
    uint32_t place;
  };
  virtual std::vector<KnownEnd> known_ends(uint32_t) { return {}; }
  virtual uint32_t free_place(uint32_t place) { return place; }
  // Where what was read decides (state.text is not 0): the state of a word that repeats nothing, and the ends of the word
  // that would repeat something. Nothing: that cannot be said in short.
  virtual GrammarState fresh(GrammarState state) { return state; }
  virtual std::optional<std::vector<std::string>> repeated_ends(GrammarState) { return std::nullopt; }
};

}  // namespace ingot

template <>
struct std::hash<ingot::GrammarState> {
  size_t operator()(const ingot::GrammarState& s) const {
    return ingot::splitmix(ingot::splitmix(uint64_t{s.place} << 32 | s.frame) ^ s.text);
  }
};
