// One regular expression of a model's own files, to match names with: Python's re.match, which is bound to the start of
// the text and not to its end. PCRE2, with limits, since the expression may be hostile. (The expressions that cut text
// are Pretokenizer's.)
#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace ingot {

class Pattern {
 public:
  // Throws Error for an expression that PCRE2 refuses.
  explicit Pattern(std::string_view expression);
  ~Pattern();

  // Throws Error when the expression needs too many steps on this text.
  bool matches_start(std::string_view text) const;

 private:
  struct Compiled;
  std::string expression_;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace ingot
