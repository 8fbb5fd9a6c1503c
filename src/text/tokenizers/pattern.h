// Pattern: a regular expression from a model's files or from a user that matches names. It runs in PCRE2 with limits,
// because the expression may be hostile. TextRegex is for expressions that cut text.
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

  // Both throw Error when the expression needs too many steps on this text. matches_start is Python's re.match: the
  // match begins at the start of the text, and may end anywhere. matches_part is re.search: it may begin anywhere too.
  bool matches_start(std::string_view text) const;
  bool matches_part(std::string_view text) const;

 private:
  bool matches(std::string_view text, unsigned options) const;
  struct Compiled;
  std::string expression_;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace ingot
