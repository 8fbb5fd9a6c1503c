// MarkerMatcher: finds the first of several markers in text that arrives byte by byte. Bytes that may begin a marker
// are held until more bytes decide. Other bytes are released. Markers are short, so the time per byte is bounded.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ingot {

class MarkerMatcher {
 public:
  // The markers must outlive the matcher. Empty markers are never found. Held bytes stay held.
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
