#include "engine/answer_constraint.h"

namespace ingot {

AnswerConstraint::AnswerConstraint(std::shared_ptr<Constraint> constraint, ConstraintStart start)
    : constraint_(std::move(constraint)),
      start_(std::move(start)),
      matcher_(constraint_),
      begun_(start_.is_first()) {}

std::shared_ptr<const TokenMask> AnswerConstraint::mask() { return begun_ ? matcher_.mask() : nullptr; }

bool AnswerConstraint::accept(int32_t token) {
  if (begun_) return matcher_.accept(token);
  begun_ = begins_behind(token);
  return true;
}

bool AnswerConstraint::begins_behind(int32_t token) {
  if (token == start_.token) return true;
  if (start_.text.empty()) return false;
  tail_ += constraint_->vocabulary().bytes(token);
  if (tail_.find(start_.text) != std::string::npos) return true;
  if (tail_.size() >= start_.text.size()) tail_.erase(0, tail_.size() - start_.text.size() + 1);
  return false;
}

void AnswerConstraint::go_back(Place place) {
  begun_ = place.begun;
  tail_ = std::move(place.tail);
  matcher_.roll_back(matcher_.n_tokens() - place.n_tokens);
}

}  // namespace ingot
