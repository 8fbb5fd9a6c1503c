#include "text/calls/marker_matcher.h"

#include <algorithm>

namespace ingot {

std::string_view MarkerMatcher::feed(char c, std::string& released) {
  const auto begins = [c](std::string_view marker) { return marker.starts_with(c); };
  if (held_.empty() && std::none_of(markers_.begin(), markers_.end(), begins)) {
    released += c;
    return {};
  }
  held_ += c;
  size_t first = 0;  // of the text that is still held
  while (first < held_.size()) {
    const std::string_view rest = std::string_view(held_).substr(first);
    bool may_be = false;
    for (const std::string_view marker : markers_) {
      if (marker.empty() || !marker.starts_with(rest)) continue;
      may_be = true;
      if (marker.size() > rest.size()) continue;
      released += held_.substr(0, first);
      held_.clear();
      return marker;
    }
    if (may_be) break;
    ++first;
  }
  released += held_.substr(0, first);
  held_.erase(0, first);
  return {};
}

}  // namespace ingot
