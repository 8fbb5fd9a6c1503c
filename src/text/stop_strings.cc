#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace ingot {
namespace {

constexpr size_t kMaxStrings = 16;
constexpr size_t kMaxStopBytes = 256;

}  // namespace

StopStrings::StopStrings(std::vector<std::string> strings) {
  if (strings.size() > kMaxStrings) throw Error("{} stop strings: at most {}", strings.size(), kMaxStrings);
  for (size_t i = 0; i < strings.size(); ++i) {
    if (strings[i].empty()) throw Error("stop string {} is empty", i);
    if (strings[i].size() > kMaxStopBytes)
      throw Error("stop string {} has {} bytes: at most {}", i, strings[i].size(), kMaxStopBytes);
    // The fallbacks of a pattern result from matching it against itself, starting at the second byte.
    Pattern& pattern = patterns_.emplace_back(Pattern{std::move(strings[i]), {0}, 0});
    for (size_t j = 1; j < pattern.text.size(); ++j) {
      advance(pattern, pattern.text[j]);
      pattern.fallback.push_back(pattern.matched);
    }
    pattern.matched = 0;
  }
}

// Here matched < length, because a whole match ends the stream.
void StopStrings::advance(Pattern& pattern, char byte) {
  while (pattern.matched > 0 && pattern.text[pattern.matched] != byte)
    pattern.matched = pattern.fallback[pattern.matched - 1];
  if (pattern.text[pattern.matched] == byte) ++pattern.matched;
}

std::string StopStrings::push(std::string_view text) {
  if (stopped_) return "";
  size_t n_open = 0;  // bytes at the end that may be the beginning of a stop string
  for (char byte : text) {
    held_ += byte;
    n_open = 0;
    for (Pattern& pattern : patterns_) {
      advance(pattern, byte);
      n_open = std::max(n_open, static_cast<size_t>(pattern.matched));
      const bool whole = static_cast<size_t>(pattern.matched) == pattern.text.size();
      if (whole && pattern.text.size() > match_.size()) match_ = pattern.text;
    }
    if (match_.empty()) continue;
    stopped_ = true;
    held_.resize(held_.size() - match_.size());
    return std::exchange(held_, {});
  }
  if (text.empty()) return "";
  std::string shown = held_.substr(0, held_.size() - n_open);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopStrings::flush() {
  if (stopped_) return "";
  for (Pattern& pattern : patterns_) pattern.matched = 0;
  return std::exchange(held_, {});
}

}  // namespace ingot
