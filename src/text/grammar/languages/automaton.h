// Automaton: a grammar as a machine that reads bytes. The code that fills token masks uses this interface. A state is
// small and can be stored and compared. The data behind a state is built when the state is first reached. Not
// thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/splitmix.h"
#include "text/grammar/languages/work_meter.h"

namespace ingot {

// `place`: the position in a word or between words; 0: no text continues from here. `frame`: the nesting around the
// place. `text`: the text read so far, if a rule needs it later.
struct GrammarState {
  uint32_t place = 0, frame = 0, text = 0;
  bool is_dead() const { return place == 0; }
  bool operator==(const GrammarState&) const = default;
};

class Automaton {
 public:
  virtual ~Automaton() = default;
  // Counts the work of all functions below, which throw TooMuchWork at its limit. Without a limit, they do all work.
  WorkMeter& meter() { return *meter_; }
  // Counts the work in another meter. Derived classes pass the meter to their parts.
  virtual void use_meter(const SharedMeter& meter) { meter_.share(meter); }
  virtual size_t n_bytes() const = 0;  // approximate current size

  virtual GrammarState start() = 0;
  // The state after `byte`; dead if no text of the grammar continues with `byte`.
  virtual GrammarState step(GrammarState state, uint8_t byte) = 0;
  // Names the rule that the state follows, for messages; empty: unknown.
  virtual std::string where(GrammarState) const { return ""; }
  virtual bool accepts(GrammarState state) = 0;  // whether the text may end here

  // Inside a word (string, number, name), steps depend on the place alone, not on the frame. kWordEnds: the byte is the
  // last byte of the word. kWordOver: the word ended before this byte.
  static constexpr uint32_t kDead = 0, kWordEnds = 1, kWordOver = 2;
  // A machine without words has these defaults.
  virtual bool is_word(uint32_t /* place */) const { return false; }
  virtual uint32_t step_word(uint32_t /* place */, uint8_t /* byte */) { return kDead; }
  // Whether the place is in a JSON string and not in an escape. At such a place, a quote ends the word, and no other
  // byte does.
  virtual bool is_string(uint32_t) const { return false; }
  // Whether the string stays open after any characters in any number. False if unknown.
  virtual bool allows_any_text(uint32_t) const { return false; }
  // Identifies the effect of a word that ends at `place`: in the same frame, equal outcomes lead to equal states.
  virtual uint32_t word_outcome(uint32_t place) { return place; }
  virtual GrammarState end_word(GrammarState) { return {}; }
  // If the rest of the word may be any characters: at least `first` and at most `second` characters (-1: no limit).
  // first < 0: the word has other limits.
  virtual std::pair<int, int> free_chars(uint32_t /* place */) const { return {-1, -1}; }
  // A free word that equals one of these texts has a different outcome than all other free words. `text`: the rest of
  // the word after the place; `place`: the place at its end. free_place: the place of the same word once it can no
  // longer become one of these texts.
  struct KnownEnd {
    std::string text;
    uint32_t place;
  };
  virtual std::vector<KnownEnd> known_ends(uint32_t) { return {}; }
  virtual uint32_t free_place(uint32_t place) { return place; }
  // For states that depend on the text read so far (state.text is not 0), because the text may not repeat an earlier
  // one. fresh: the same state with the text kFreshText, which equals no earlier text and stays the same whatever
  // follows. After the end of such a text, the text is kPastFresh or 0. While the text is kFreshText, exactly the bytes
  // are possible that are possible after the real text. fresh() returns `state` itself if that is not so.
  // repeated_ends: the ends of the word that would repeat an earlier text; nullopt if there is no short list.
  static constexpr uint32_t kFreshText = 2, kPastFresh = 3;
  virtual GrammarState fresh(GrammarState state) { return state; }
  virtual std::optional<std::vector<std::string>> repeated_ends(GrammarState) { return std::nullopt; }

 protected:
  SharedMeter meter_;
};

}  // namespace ingot

template <>
struct std::hash<ingot::GrammarState> {
  size_t operator()(const ingot::GrammarState& s) const {
    return ingot::splitmix(ingot::splitmix(uint64_t{s.place} << 32 | s.frame) ^ s.text);
  }
};
