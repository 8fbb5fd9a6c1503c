// Cuts text into the words that a model merges within, with the regular expressions that it was trained with
// (text_regex.h). Several expressions apply in turn, each cutting the pieces of the one before: every match is a
// piece, and so is what lies between matches, unless the rule says that matches (white space, mostly) are dropped.
// PCRE2 needs well-formed UTF-8, so each run of ill-formed bytes is a piece of its own, and the text on its two sides
// is cut as if it ended and began there.
#pragma once
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizers/text_regex.h"
#include "text/tokenizers/tokenizer_spec.h"

namespace ingot {

class Pretokenizer {
 public:
  // Nothing is lost with these: the pieces are the text. Throws Error for an expression that PCRE2 refuses.
  explicit Pretokenizer(std::span<const std::string_view> patterns);
  explicit Pretokenizer(std::span<const CutRule> rules);

  // Calls on_piece for each piece, in order. Throws Error when an expression needs too many steps on this text.
  using OnPiece = std::function<void(std::string_view)>;
  void split(std::string_view text, const OnPiece& on_piece) const;

 private:
  struct Step {
    TextRegex regex;
    Cut cut;
  };
  void split_well_formed(std::string_view text, const OnPiece& on_piece) const;

  std::vector<Step> steps_;
};

}  // namespace ingot
