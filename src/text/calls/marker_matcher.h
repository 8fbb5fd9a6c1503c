// MarkerMatcher: finds the first of several markers in text that comes byte by byte. Bytes that may begin a marker are
// held until more bytes decide; other bytes are released. Markers are short, so the time for a byte is bounded.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ingot {

class MarkerMatcher {
 public:
  // The markers must outlive the matcher. Empty markers are never found. Held bytes stay, for take().
  void look_for(std::vector<std::string_view> markers) { markers_ = std::move(markers); }

  // Returns the marker that this byte completes, or an empty text. Bytes that belong to no marker are appended to
  // `released`.
  std::string_view feed(char c, std::string& released);

  const std::string& held() const { return held_; }
  std::string take() { return std::exchange(held_, {}); }

 private:
  std::vector<std::string_view> markers_;
  std::string held_;
};

}  // namespace ingot
