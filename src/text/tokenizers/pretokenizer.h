// Cuts text into words with the regular expressions of the model's training (text_regex.h). Tokens merge only within a
// word. If there are several expressions, each expression cuts the pieces of the previous expression. Every match is a
// piece, and so is the text between matches, unless the rule drops one of the two. PCRE2 needs well-formed UTF-8, so
// each run of ill-formed bytes is a separate piece. The text before and after such a run is cut as separate texts.
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
  // With patterns, the pieces together are the whole text. Throws Error for an expression that PCRE2 refuses.
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
