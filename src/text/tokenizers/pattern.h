// One regular expression from a model's files, which matches names. It works like Python's re.match: the match must
// begin at the start of the text, but may end anywhere. PCRE2, with limits, because the expression may be hostile.
// (Pretokenizer has the expressions that cut text.)
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
