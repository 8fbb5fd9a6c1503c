// MarkerMatcher: finds the first of some markers in text that comes byte by byte. What may be the beginning of one is
// held until more bytes decide; what is none is released. Markers are short, so a byte costs a bounded time.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ingot {

class MarkerMatcher {
 public:
  // The markers must outlive the matcher; empty ones are never found. What is held stays, for take().
  void look_for(std::vector<std::string_view> markers) { markers_ = std::move(markers); }

  // The marker that is complete with this byte, or an empty text. Bytes that are of none are appended to `released`.
  std::string_view feed(char c, std::string& released);

  const std::string& held() const { return held_; }
  std::string take() { return std::exchange(held_, {}); }

 private:
  std::vector<std::string_view> markers_;
  std::string held_;
};

}  // namespace ingot
