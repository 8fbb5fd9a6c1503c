// NgramProposer: looks for the end of the text in the text before it (prompt lookup, and what the answer has said), and
// proposes what followed there. Needs no model.
//
// The two last tokens hash to the places where they stood before, newest first, as in LZ77 (RFC 1951, section 4). Among
// some of these places, and the place that the last proposal came from, the longest match wins. So a token costs a
// bounded time, whatever the length of the text.
#pragma once
#include "engine/speculate/proposer.h"

namespace ingot {

class NgramProposer final : public Proposer {
 public:
  // prediction: a text that the answer may repeat, such as the file that the answer edits.
  explicit NgramProposer(std::vector<int32_t> prediction = {}) : prediction_(std::move(prediction)) {}
  Proposal propose(std::span<const int32_t> history, int n) override;

 private:
  struct Match {
    int32_t place = 0;  // of the token that followed
    int length = 0;     // tokens before `place` that equal the end of the text
  };

  void append(int32_t token);
  void add_place(int32_t place);
  Match longest_match() const;
  int match_length(int32_t place) const;

  std::vector<int32_t> prediction_;  // empty once the text has it
  std::vector<int32_t> text_;        // the prediction, a separator, and the history
  size_t n_history_ = 0;             // tokens of the history in text_
  std::vector<int32_t> newest_;      // by hash of two tokens: the newest place after them; 0: none
  std::vector<int32_t> previous_;    // by place: the place before it with the same hash
  int32_t followed_ = 0;             // the place that follows the last proposal's place, while the text agrees; 0: none
};

}  // namespace ingot
