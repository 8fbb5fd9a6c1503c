#include "engine/answer_constraint.h"

#include <algorithm>

#include "base/error.h"

namespace ingot {

AnswerConstraint::AnswerConstraint(std::shared_ptr<Constraint> constraint, ConstraintStart start)
    : constraint_(std::move(constraint)),
      start_(std::move(start)),
      matcher_(constraint_),
      begun_(start_.is_first()) {}

std::shared_ptr<const TokenMask> AnswerConstraint::mask(const Effort& effort) {
  return begun_ ? matcher_.mask(effort) : nullptr;
}

std::shared_ptr<const TokenMask> AnswerConstraint::next_mask(const Effort& effort) {
  std::shared_ptr<const TokenMask> next = mask(effort);
  if (next && std::ranges::none_of(*next, [](uint32_t word) { return word != 0; }))
    throw Error("the constraint allows none of the model's tokens at this place");
  return next;
}

bool AnswerConstraint::accept(int32_t token, const Effort& effort) {
  if (begun_ && !matcher_.accept(token, effort)) return false;
  begun_ = begun_ || begins_behind(token);
  ++n_tokens_;
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
  n_tokens_ = place.n_tokens;
  tail_ = std::move(place.tail);
  matcher_.roll_back(matcher_.n_tokens() - place.n_matched);
}

}  // namespace ingot
