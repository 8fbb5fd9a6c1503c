#include "server/api/reasoning.h"

#include <algorithm>

namespace ingot {
namespace {

constexpr std::string_view kOpen = "<think>", kClose = "</think>", kSpace = " \t\r\n";

// How many bytes at the end of text may begin the tag.
size_t begun(std::string_view text, std::string_view tag) {
  for (size_t n = std::min(tag.size() - 1, text.size()); n > 0; --n)
    if (text.ends_with(tag.substr(0, n))) return n;
  return 0;
}

}  // namespace

std::string_view thought_of(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kSpace), text.size()));
}

bool opens_thought(std::string_view prompt_end) {
  const size_t last = prompt_end.find_last_not_of(kSpace);
  return last != prompt_end.npos && prompt_end.substr(0, last + 1).ends_with(kOpen);
}

ReasoningSplitter::Parts ReasoningSplitter::push(std::string_view text) {
  held_ += text;
  Parts parts;
  advance(parts, false);
  return parts;
}

ReasoningSplitter::Parts ReasoningSplitter::flush() {
  Parts parts;
  advance(parts, true);
  return parts;
}

ReasoningSplitter::Parts ReasoningSplitter::split(std::string_view whole) {
  Parts parts = push(whole);
  advance(parts, true);
  return parts;
}

void ReasoningSplitter::advance(Parts& parts, bool at_end) {
  if (state_ == State::kStart) {
    const size_t first = std::min(held_.find_first_not_of(kSpace), held_.size());
    const std::string_view rest = std::string_view(held_).substr(first);
    if (rest.starts_with(kOpen)) {
      held_.erase(0, first + kOpen.size());
      state_ = State::kThinking;
    } else if (at_end || !kOpen.starts_with(rest)) {
      state_ = State::kSaying;
    } else {
      return;
    }
  }
  if (state_ == State::kThinking) {
    const size_t close = held_.find(kClose);
    const bool is_closed = close != held_.npos;
    const size_t n = is_closed ? close : held_.size() - (at_end ? 0 : begun(held_, kClose));
    parts.thought += held_.substr(0, n);
    held_.erase(0, is_closed ? n + kClose.size() : n);
    if (!is_closed) return;
    state_ = State::kBetween;
  }
  if (state_ == State::kBetween) {  // the line break between the two belongs to neither
    held_.erase(0, std::min(held_.find_first_not_of(kSpace), held_.size()));
    if (held_.empty()) return;
    state_ = State::kSaying;
  }
  parts.said += held_;
  held_.clear();
}

}  // namespace ingot
