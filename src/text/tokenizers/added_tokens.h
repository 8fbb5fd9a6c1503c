// Finds added tokens (<|im_start|>, user-defined words) in text before it is tokenized. The leftmost match wins, and
// the longest of all matches at the same position. The search narrows a sorted list byte by byte, like a trie.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace ingot {

class AddedTokens {
 public:
  // Longer texts are never recognised. This limit keeps the search linear; the tokens of real models are far shorter.
  static constexpr size_t kMaxBytes = 256;

  struct Match {
    size_t begin, end;
    int32_t id;  // -1: no match; begin and end are then the end of the text
  };

  AddedTokens() = default;
  // The texts must outlive this object and must not be empty. Among equal texts the lowest id wins.
  explicit AddedTokens(std::vector<std::pair<std::string_view, int32_t>> tokens);

  bool empty() const { return tokens_.empty(); }
  // The next match at or after `from`.
  Match find(std::string_view text, size_t from) const;

 private:
  Match longest_at(std::string_view text, size_t begin) const;

  std::vector<std::pair<std::string_view, int32_t>> tokens_;  // sorted
  std::array<uint32_t, 257> first_byte_{};  // tokens that begin with byte b: [first_byte_[b], first_byte_[b + 1])
};

}  // namespace ingot
