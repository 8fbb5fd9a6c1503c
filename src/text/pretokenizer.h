// Cuts text into the words that byte-level BPE merges within, with the regular expressions that a model was trained
// with (PCRE2, JIT compiled). Several expressions apply in turn, each cutting the pieces of the one before: every match
// is a piece, and so is what lies between matches. Nothing is lost: the pieces are the text. PCRE2 needs well-formed
// UTF-8, so each run of ill-formed bytes is a piece of its own, and the text on its two sides is cut as if it ended and
// began there.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace ingot {

class Pretokenizer {
 public:
  // Throws Error for an expression that PCRE2 refuses. \s and \S mean Unicode's White_Space, as in the Rust and
  // Oniguruma engines that the patterns were written for.
  explicit Pretokenizer(std::span<const std::string_view> patterns);
  ~Pretokenizer();

  // Calls on_piece for each piece, in order. Throws Error when an expression needs too many steps on this text.
  using OnPiece = std::function<void(std::string_view)>;
  void split(std::string_view text, const OnPiece& on_piece) const;

 private:
  class Regex;
  void split_well_formed(std::string_view text, const OnPiece& on_piece) const;

  std::vector<std::unique_ptr<Regex>> steps_;
};

}  // namespace ingot
