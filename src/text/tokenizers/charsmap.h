// SentencePiece's compiled normalization table (precompiled_charsmap): replacements of strings by other strings. The
// table consists of a size, a trie of that many bytes (a double array: https://github.com/s-yata/darts-clone), and the
// replacements, each ended by NUL. The table may be hostile: the constructor checks the whole trie, so look-ups need no
// checks.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

class Charsmap {
 public:
  // Throws Error if the table is cut short, or has an offset outside of itself.
  explicit Charsmap(std::string_view blob);

  // Replaces every longest match, left to right, as SentencePiece itself does.
  std::string apply(std::string_view text) const;
  // As in Hugging Face tokenizers: a grapheme of less than six bytes is replaced if a key matches its start. Otherwise,
  // each character of the grapheme is matched separately.
  std::string apply_by_grapheme(std::string_view text) const;

 private:
  struct Match {
    size_t length;
    uint32_t replacement;  // where it begins
  };
  // The shortest or the longest key at the start of text.
  std::optional<Match> find(std::string_view text, bool longest) const;
  void check_trie() const;
  std::string_view replacement(uint32_t begin) const { return replacements_.data() + begin; }

  std::vector<uint32_t> units_;
  std::string replacements_;  // ends with NUL
};

}  // namespace ingot
