// StopStrings: ends streamed text at the first of several strings. Text that may be the beginning of a stop string is
// held back until the next text decides. So no part of a stop string is shown, and no other text is lost. Each string
// is matched with Knuth, Morris and Pratt's automaton, so the time is linear for any text. The result does not depend
// on how the text is cut into pieces.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

class StopStrings {
 public:
  // Throws Error for an empty string, a string over 256 bytes, or more than 16 strings.
  explicit StopStrings(std::vector<std::string> strings);

  // Adds text, and returns the text that may be shown now. When a string is complete, stopped() becomes true: the text
  // before the string has been returned; the string and the text after it are dropped. If several strings are complete
  // at the same byte, the longest one counts.
  std::string push(std::string_view text);

  // Ends the text. Returns the text that was held back, unless a string has stopped it.
  std::string flush();

  bool stopped() const { return stopped_; }
  const std::string& match() const { return match_; }  // the string that stopped the text

 private:
  struct Pattern {
    std::string text;
    std::vector<int> fallback;  // [length]: for text[0..i], the longest proper prefix that is also a suffix
    int matched = 0;            // bytes of this pattern at the end of the text so far
  };

  static void advance(Pattern& pattern, char byte);

  std::vector<Pattern> patterns_;
  std::string held_;
  std::string match_;
  bool stopped_ = false;
};

}  // namespace ingot
