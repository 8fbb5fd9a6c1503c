// AnswerConstraint: one answer's way through the grammar that its request asks for. The grammar may begin only behind
// a text that the model writes first, as the end of its reasoning; before, any token may come.
#pragma once
#include <memory>
#include <string>

#include "text/grammar/constraint.h"

namespace ingot {

// Where the grammar begins: behind the first token that completes `text`, or that is `token` (as a control token, which
// has no text). Neither: with the first token of the answer.
struct ConstraintStart {
  std::string text;
  int32_t token = -1;
  bool is_first() const { return text.empty() && token < 0; }
};

class AnswerConstraint {
 public:
  AnswerConstraint(std::shared_ptr<Constraint> constraint, ConstraintStart start);

  // The tokens that may come next; null: all. A mask without a token is a dead end.
  std::shared_ptr<const TokenMask> mask();
  // Goes on by a token; false, and nothing changes, for one that may not come.
  bool accept(int32_t token);
  bool is_over() { return begun_ && matcher_.is_over(); }  // the answer is whole, and nothing can follow
  std::string forced() { return begun_ ? matcher_.forced() : std::string(); }  // the text that must come next
  const GrammarVocabulary& vocabulary() const { return constraint_->vocabulary(); }

  // For drafts: go_back undoes what has been accepted since.
  struct Place {
    bool begun = false;
    int n_tokens = 0;
    std::string tail;
  };
  Place place() const { return {begun_, matcher_.n_tokens(), tail_}; }
  void go_back(Place place);

 private:
  bool begins_behind(int32_t token);

  const std::shared_ptr<Constraint> constraint_;
  const ConstraintStart start_;
  Matcher matcher_;
  bool begun_;
  std::string tail_;  // of the text so far: less than start_.text
};

inline bool is_dead_end(const TokenMask& mask) {
  for (uint32_t word : mask)
    if (word != 0) return false;
  return true;
}

}  // namespace ingot
