#include "engine/speculate/ngram.h"

#include <algorithm>

namespace ingot {
namespace {

constexpr int kShortest = 2;    // tokens of a match
constexpr int kLongest = 32;    // tokens compared
constexpr int kMaxPlacesCompared = 8;  // places compared
constexpr int32_t kSeparator = -1;

uint32_t hash_of(int32_t a, int32_t b) {
  uint32_t hash = static_cast<uint32_t>(a) * 0x9E3779B9u + static_cast<uint32_t>(b);
  hash *= 0x85EBCA6Bu;
  return hash ^ (hash >> 15);
}

}  // namespace

Proposal NgramProposer::propose(std::span<const int32_t> history, int n, const GoesOn&) {
  if (!prediction_.empty()) {  // after a copy of the prompt's end, so that the first lookup finds it
    for (const int32_t token : history.last(std::min<size_t>(history.size(), kLongest))) append(token);
    for (const int32_t token : prediction_) append(token);
    append(kSeparator);
    prediction_ = {};
  }
  for (; n_history_ < history.size(); ++n_history_) append(history[n_history_]);
  const Match match = longest_match();
  followed_ = match.place;
  Proposal proposal{.tokens = {}, .evidence = match.length};
  if (match.length < kShortest) return proposal;
  const size_t size = text_.size();
  for (size_t i = match.place; proposal.tokens.size() < static_cast<size_t>(n); ++i) {
    const int32_t token = i < size ? text_[i] : proposal.tokens[i - size];  // a repeating text is continued
    if (token == kSeparator) break;
    proposal.tokens.push_back(token);
  }
  return proposal;
}

void NgramProposer::append(int32_t token) {
  followed_ = followed_ > 0 && text_[followed_] == token ? followed_ + 1 : 0;
  text_.push_back(token);
  const auto size = static_cast<int32_t>(text_.size());
  previous_.resize(text_.size() + 1);
  if (text_.size() > newest_.size()) {
    newest_.assign(std::max<size_t>(256, 2 * newest_.size()), 0);
    for (int32_t place = kShortest; place < size; ++place) add_place(place);
  }
  if (size >= kShortest) add_place(size);
}

void NgramProposer::add_place(int32_t place) {
  int32_t& newest = newest_[hash_of(text_[place - 2], text_[place - 1]) & (newest_.size() - 1)];
  previous_[place] = newest;
  newest = place;
}

NgramProposer::Match NgramProposer::longest_match() const {
  Match best;
  const auto look_at = [&](int32_t place) {
    const int length = match_length(place);
    if (length > best.length) best = {place, length};
  };
  if (followed_ > 0) look_at(followed_);
  int32_t place = text_.size() < kShortest ? 0 : previous_[text_.size()];
  for (int i = 0; i < kMaxPlacesCompared && place > 0; ++i, place = previous_[place]) look_at(place);
  return best;
}

int NgramProposer::match_length(int32_t place) const {
  const int max_length = std::min(place, kLongest);
  const auto at = text_.rbegin();
  int length = 0;
  while (length < max_length && text_[place - 1 - length] == at[length] && at[length] != kSeparator) ++length;
  return length;
}

}  // namespace ingot
