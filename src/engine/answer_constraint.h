// AnswerConstraint: tracks one answer's position in the grammar of its request. The grammar may begin after a text that
// the model writes first, for example the end of its reasoning. Until then, any token is allowed.
#pragma once
#include <memory>
#include <string>

#include "text/grammar/constraint.h"
#include "text/grammar/constraint_start.h"

namespace ingot {

class AnswerConstraint {
 public:
  AnswerConstraint(std::shared_ptr<Constraint> constraint, ConstraintStart start);

  // The tokens allowed next; null: all tokens. A mask without any token is a dead end.
  std::shared_ptr<const TokenMask> mask();
  // Advances by one token. If the token is not allowed, returns false and changes nothing.
  bool accept(int32_t token);
  bool is_over() { return begun_ && matcher_.is_over(); }  // the answer is complete and nothing can follow
  std::string forced() { return begun_ ? matcher_.forced() : std::string(); }  // the text that must come next
  const GrammarVocabulary& vocabulary() const { return constraint_->vocabulary(); }

  // For drafts: go_back(place) undoes all tokens accepted since place() returned that place.
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
  std::string tail_;  // the end of the text so far, shorter than start_.text
};

inline bool is_dead_end(const TokenMask& mask) {
  for (uint32_t word : mask)
    if (word != 0) return false;
  return true;
}

}  // namespace ingot
