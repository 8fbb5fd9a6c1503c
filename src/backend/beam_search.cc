#include "backend/beam_search.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"

namespace ingot {

void validate(const BeamParams& params) {
  if (params.n_beams < 1 || params.n_beams > kMaxBeams)
    throw Error("n_beams is {}: it must be from 1 to {}", params.n_beams, kMaxBeams);
  if (!(std::abs(params.length_penalty) <= 100))
    throw Error("length_penalty is {}: it must be from -100 to 100", params.length_penalty);
}

int beam_candidates(int n_beams, size_t n_end_tokens) {
  return static_cast<int>(std::max<size_t>(2, 1 + n_end_tokens)) * n_beams;
}

BeamSearch::BeamSearch(const BeamParams& params, size_t n_end_tokens, int max_tokens, IsEnd is_end)
    : params_(params),
      n_kept_(static_cast<size_t>(beam_candidates(params.n_beams, n_end_tokens))),
      max_tokens_(max_tokens),
      is_end_(std::move(is_end)) {
  CHECK_GE(max_tokens, 1);
}

std::span<const BeamSearch::Beam> BeamSearch::step(std::span<const std::vector<TokenLogprob>> candidates) {
  CHECK_EQ(candidates.size(), running_.size());
  rank(candidates);
  ++n_tokens_;
  const auto n_beams = static_cast<size_t>(params_.n_beams);
  const bool is_full = params_.early_stopping == EarlyStopping::kYes && finished_.size() == n_beams;
  std::vector<Text> running;
  next_.clear();
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& candidate = candidates_[i];
    const bool has_ended = is_end_(candidate.next.token);
    if (has_ended || n_tokens_ == max_tokens_) {
      if (i < n_beams && !is_full && may_improve_) finish(candidate, has_ended);
    } else if (next_.size() < n_beams) {
      next_.push_back({candidate.parent, candidate.next.token});
      running.push_back(text_of(candidate));
    }
  }
  running_ = std::move(running);
  may_improve_ = may_improve_ && can_improve();
  if (!may_improve_ || (params_.early_stopping == EarlyStopping::kYes && finished_.size() == n_beams))
    next_.clear(), running_.clear();
  return next_;
}

// The best candidates of all beams. Equal sums keep the order of the beams and of their candidates.
void BeamSearch::rank(std::span<const std::vector<TokenLogprob>> candidates) {
  candidates_.clear();
  for (size_t beam = 0; beam < candidates.size(); ++beam)
    for (const TokenLogprob& next : candidates[beam])
      candidates_.push_back({static_cast<int>(beam), next, running_[beam].sum + next.logprob});
  std::erase_if(candidates_, [](const Candidate& c) { return !std::isfinite(c.sum); });
  std::ranges::stable_sort(candidates_, std::greater<>(), &Candidate::sum);
  if (candidates_.size() > n_kept_) candidates_.resize(n_kept_);
}

BeamSearch::Text BeamSearch::text_of(const Candidate& candidate) const {
  Text text = running_[static_cast<size_t>(candidate.parent)];
  text.tokens.push_back(candidate.next.token);
  text.logprobs.push_back(candidate.next.logprob);
  text.sum = candidate.sum;
  return text;
}

float BeamSearch::score(float sum, int n_tokens) const {
  return static_cast<float>(sum / std::pow(static_cast<double>(n_tokens), double{params_.length_penalty}));
}

// Keeps the text if it is among the best.
void BeamSearch::finish(const Candidate& candidate, bool has_ended) {
  const float own = score(candidate.sum, n_tokens_);
  const auto place = std::ranges::upper_bound(finished_, own, std::greater<>(), &Text::score);
  Text text = text_of(candidate);
  text.score = own;
  text.has_ended = has_ended;
  finished_.insert(place, std::move(text));
  if (finished_.size() > static_cast<size_t>(params_.n_beams)) finished_.pop_back();
}

// Whether a beam may become better than the worst finished text.
bool BeamSearch::can_improve() const {
  if (running_.empty()) return false;
  if (finished_.size() < static_cast<size_t>(params_.n_beams)) return true;
  const bool grows = params_.early_stopping == EarlyStopping::kNever && params_.length_penalty > 0;
  return score(running_.front().sum, grows ? max_tokens_ : n_tokens_) > finished_.back().score;
}

}  // namespace ingot
