// Regions: sets of places in a word. At all places of a region, the same characters may come next, and most of these
// characters lead to a place of the same region. While a string stays in a region, the characters of a token alone
// decide whether the token is allowed.
#pragma once
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "text/grammar/languages/automaton.h"
#include "text/grammar/masks/plain_tokens.h"

namespace ingot {

struct Region {
  static constexpr int kNoEnd = INT32_MAX;
  CharKinds stays;    // characters that lead to a place of the region; empty: no region was found
  CharKinds leaves;   // other characters that may come next
  int chars = 0;      // the most characters of `stays` in a row, or kNoEnd
  bool ends = false;  // no character may come after `chars` characters
  auto operator<=>(const Region&) const = default;
};

// The region of a string that allows any text.
inline constexpr Region kAnyText{{{~uint64_t{0}, ~uint64_t{0}}}, {}, Region::kNoEnd, false};

class Regions {
 public:
  explicit Regions(Automaton& automaton) : automaton_(automaton) {}

  // The characters that may come after `place`, which must be a place of a string (Automaton::is_string).
  struct Next {
    CharKinds alive;
    // The places after a character beyond ASCII that is not PlainTokens::is_special. Empty if some of these characters
    // are allowed and others are not.
    std::vector<uint32_t> others;
  };
  const Next& next(uint32_t place);
  const Region& of(uint32_t place);
  void clear() { next_.clear(), regions_.clear(); }

 private:
  Next find_next(uint32_t place);
  Region find(uint32_t place);
  // Calls visit(place) for each place that a character of `kinds` leads to from `place`. All `kinds` must be alive.
  template <class Visit>
  void each_after(uint32_t place, const CharKinds& kinds, Visit&& visit);
  bool stays_alike(uint32_t place, uint8_t kind, const CharKinds& alive);

  Automaton& automaton_;
  std::unordered_map<uint32_t, Next> next_;
  std::unordered_map<uint32_t, Region> regions_;
};

}  // namespace ingot
