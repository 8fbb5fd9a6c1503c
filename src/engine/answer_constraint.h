// AnswerConstraint: tracks one answer's position in the grammar of its request. The grammar may begin after a text that
// the model writes first, for example the end of its reasoning. Until then, any token is allowed.
#pragma once
#include <memory>
#include <string>

#include "text/grammar/masks/constraint.h"
#include "text/grammar/masks/constraint_start.h"

namespace ingot {

class AnswerConstraint {
 public:
  AnswerConstraint(std::shared_ptr<Constraint> constraint, ConstraintStart start);

  // The tokens allowed next; null: all tokens. next_mask throws Error if no token is allowed.
  std::shared_ptr<const TokenMask> mask(const Effort& effort = kFullEffort);
  std::shared_ptr<const TokenMask> next_mask(const Effort& effort);
  // Advances by one token. If the token is not allowed, returns false and changes nothing.
  bool accept(int32_t token, const Effort& effort = kFullEffort);
  // The answer is complete and nothing can follow.
  bool is_over(const Effort& effort = kFullEffort) { return begun_ && matcher_.is_over(effort); }
  // The text that must come next.
  std::string forced(const Effort& effort = kFullEffort) { return begun_ ? matcher_.forced(effort) : std::string(); }
  const GrammarVocabulary& vocabulary() const { return constraint_->vocabulary(); }
  int n_tokens() const { return n_tokens_; }  // accepted so far
  bool is_slow() const { return begun_ && constraint_->is_slow(); }

  // For drafts: go_back(place) undoes all tokens accepted since place() returned that place.
  struct Place {
    bool begun = false;
    int n_tokens = 0, n_matched = 0;
    std::string tail;
  };
  Place place() const { return {begun_, n_tokens_, matcher_.n_tokens(), tail_}; }
  void go_back(Place place);

 private:
  bool begins_behind(int32_t token);

  const std::shared_ptr<Constraint> constraint_;
  const ConstraintStart start_;
  Matcher matcher_;
  bool begun_;
  int n_tokens_ = 0;
  std::string tail_;  // the end of the text so far, shorter than start_.text
};

}  // namespace ingot
