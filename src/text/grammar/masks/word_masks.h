// WordMasks: finds, for a place in a word, the tokens that leave the word open, and the trie nodes at which other
// tokens end the word. The result does not depend on the frame around the word.
#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include "text/grammar/languages/automaton.h"
#include "text/grammar/masks/regions.h"
#include "text/grammar/masks/vocabulary.h"

namespace ingot {

struct WordMask {
  struct Exit {
    uint32_t node;       // node of `tree`
    bool is_after;       // the word ends with this node's byte; otherwise before it
  };
  struct Exits {
    uint32_t place;      // of the word when it ends
    std::vector<Exit> all;
    CloserSet closers;   // closers whose quote ends the word at this place
  };
  TokenMask inside;
  const TokenTrie* tree = nullptr;
  std::vector<Exits> exits;  // grouped by word_outcome
};

class WordMasks {
 public:
  WordMasks(Automaton& automaton, const GrammarVocabulary& vocabulary)
      : automaton_(automaton), vocabulary_(vocabulary), regions_(automaton) {}

  const WordMask& of(uint32_t place);
  size_t n_bytes() const { return n_bytes_; }
  void clear();

 private:
  // Tokens that stay in a region after their first character.
  struct Group {
    CharKinds first;
    Region region;
  };
  using Outcomes = std::unordered_map<uint32_t, size_t>;  // index in WordMask::exits
  void walk_tree(uint32_t place, WordMask& made, Outcomes& outcomes);
  void walk_closers(uint32_t place, WordMask& made, Outcomes& outcomes);
  void walk_plain(uint32_t place, WordMask& made);
  std::vector<Group> groups_after(uint32_t place);
  WordMask::Exits& exits_at(uint32_t place, WordMask& made, Outcomes& outcomes);

  Automaton& automaton_;
  const GrammarVocabulary& vocabulary_;
  Regions regions_;
  std::unordered_map<uint32_t, std::unique_ptr<WordMask>> made_;
  size_t n_bytes_ = 0;
};

}  // namespace ingot
