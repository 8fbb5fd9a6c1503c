// SentencePiece's compiled normalization table (precompiled_charsmap): which strings become which others. A size, a
// trie that fills so many bytes (a double array: https://github.com/s-yata/darts-clone), then the replacements, each
// ended by NUL. All of it may be hostile: the constructor walks the whole trie, so that look-ups need no checks of
// their own.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

class Charsmap {
 public:
  // Throws Error where it is cut short, or points outside of itself.
  explicit Charsmap(std::string_view blob);

  // Every longest match, left to right, as SentencePiece itself does.
  std::string apply(std::string_view text) const;
  // The same as Hugging Face tokenizers does it: what a grapheme of less than six bytes, else a character, begins with.
  std::string apply_by_grapheme(std::string_view text) const;

 private:
  struct Match {
    size_t length;
    uint32_t replacement;  // where it begins
  };
  // The first or the longest of the keys that text begins with.
  std::optional<Match> find(std::string_view text, bool longest) const;
  void check_trie() const;
  std::string_view replacement(uint32_t begin) const { return replacements_.data() + begin; }

  std::vector<uint32_t> units_;
  std::string replacements_;  // ends with NUL
};

}  // namespace ingot
