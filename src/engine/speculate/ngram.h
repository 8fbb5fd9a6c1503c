// NgramProposer: searches the prompt and the answer for an earlier occurrence of their last tokens (prompt lookup), and
// proposes the tokens that followed there. Needs no model.
//
// A hash of the last two tokens finds their earlier places, newest first, as in LZ77 (RFC 1951, section 4). The
// proposer compares a few of these places and the place of the last proposal, and uses the longest match. So the time
// for a token is bounded for texts of any length.
#pragma once
#include "engine/speculate/proposer.h"

namespace ingot {

class NgramProposer final : public Proposer {
 public:
  // prediction: a text that the answer may repeat, such as the file that the answer edits.
  explicit NgramProposer(std::vector<int32_t> prediction = {}) : prediction_(std::move(prediction)) {}
  Proposal propose(std::span<const int32_t> history, int n, const GoesOn& = {}) override;

 private:
  struct Match {
    int32_t place = 0;  // index of the token that followed
    int length = 0;     // tokens before `place` that equal the end of the text
  };

  void append(int32_t token);
  void add_place(int32_t place);
  Match longest_match() const;
  int match_length(int32_t place) const;

  std::vector<int32_t> prediction_;  // empty once it is in text_
  std::vector<int32_t> text_;        // the prediction, a separator, and the history
  size_t n_history_ = 0;             // tokens of the history in text_
  std::vector<int32_t> newest_;      // by hash of two tokens: the newest place after these tokens; 0: none
  std::vector<int32_t> previous_;    // by place: the previous place with the same hash
  int32_t followed_ = 0;             // the next place of the last match, while the text agrees; 0: none
};

}  // namespace ingot
