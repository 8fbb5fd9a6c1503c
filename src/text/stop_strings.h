// StopStrings: ends streamed text at the first of several strings. Text that may be the beginning of one is held back
// until more text decides, so nothing of a stop string is ever shown and nothing else is swallowed. Each string is
// followed with Knuth, Morris and Pratt's automaton: time is linear in the text, whatever it holds. The result does not
// depend on how the text is cut into pieces.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

class StopStrings {
 public:
  // Throws Error for an empty string, one over 256 bytes, or more than 16.
  explicit StopStrings(std::vector<std::string> strings);

  // More text; returns what may be shown now. Once a string is complete, stopped() holds: text before it has been
  // returned, the string and what follows are dropped. Of strings complete at the same byte the longest counts.
  std::string push(std::string_view text);

  // The text is over: what was held back, unless it has stopped.
  std::string flush();

  bool stopped() const { return stopped_; }
  const std::string& match() const { return match_; }  // the string that stopped it

 private:
  struct Pattern {
    std::string text;
    std::vector<int> fallback;  // [length]: of text[0..i], the longest proper prefix that is also a suffix
    int matched = 0;            // bytes of it that the text so far ends with
  };

  static void advance(Pattern& pattern, char byte);

  std::vector<Pattern> patterns_;
  std::string held_;
  std::string match_;
  bool stopped_ = false;
};

}  // namespace ingot
