// The tokens that are plain text of a JSON string: whole characters, without quotes, escapes and control characters.
// Most tokens are. Which of them consist of given characters alone is found without a walk of the tree.
#pragma once
#include <array>
#include <bit>
#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "text/grammar/token_trie.h"

namespace ingot {

using TokenMask = std::vector<uint32_t>;  // [ceil(n_tokens / 32)]: bit i of it is token i

inline void allow_token(TokenMask& mask, int32_t token) {
  mask[static_cast<size_t>(token) / 32] |= 1u << (static_cast<uint32_t>(token) % 32);
}
inline bool allows_token(const TokenMask& mask, int32_t token) {
  return mask[static_cast<size_t>(token) / 32] >> (static_cast<uint32_t>(token) % 32) & 1u;
}

// A set of kinds of characters: each character of ASCII is a kind; all others are one, in the place of NUL.
struct CharKinds {
  static constexpr uint8_t kOthers = 0;
  std::array<uint64_t, 2> bits{};

  static uint8_t of(uint8_t first_byte) { return first_byte < 0x80 ? first_byte : kOthers; }
  void add(uint8_t kind) { bits[kind / 64] |= uint64_t{1} << (kind % 64); }
  void add(const CharKinds& other) { bits[0] |= other.bits[0], bits[1] |= other.bits[1]; }
  void remove(const CharKinds& other) { bits[0] &= ~other.bits[0], bits[1] &= ~other.bits[1]; }
  bool has(uint8_t kind) const { return bits[kind / 64] >> (kind % 64) & 1; }
  bool is_empty() const { return (bits[0] | bits[1]) == 0; }
  bool meets(const CharKinds& other) const { return ((bits[0] & other.bits[0]) | (bits[1] & other.bits[1])) != 0; }
  bool holds(const CharKinds& other) const { return ((other.bits[0] & ~bits[0]) | (other.bits[1] & ~bits[1])) == 0; }
  int count() const { return std::popcount(bits[0]) + std::popcount(bits[1]); }
  auto operator<=>(const CharKinds&) const = default;
};

class PlainTokens {
 public:
  // Characters beyond ASCII that patterns tell from the others (\s, \S and the dot do): no plain token has one.
  static bool is_special(char32_t c);
  static bool is_plain(std::string_view bytes);

  PlainTokens() = default;
  explicit PlainTokens(const std::vector<std::string>& bytes);  // of all tokens, by their ids

  const TokenTrie& trie() const { return trie_; }
  struct Below {
    CharKinds kinds;    // of characters that begin below the node
    uint16_t most = 0;  // characters of a token at the node or below, from the root
  };
  const Below& below(uint32_t node) const { return below_[node]; }

  // The tokens whose first character is of `first` and whose others are of `rest`, at most `most` in all. From any
  // thread.
  std::shared_ptr<const TokenMask> mask(const CharKinds& first, const CharKinds& rest, int most) const;

 private:
  struct Made {
    std::shared_ptr<const TokenMask> mask;
    int longest = 0;  // of the mask's tokens, in characters
  };
  using Key = std::tuple<CharKinds, CharKinds, int>;
  Made all(const CharKinds& first, const CharKinds& rest) const;
  Made without_longer(const Made& made, int most) const;

  TokenTrie trie_;
  std::vector<Below> below_;       // [node]
  std::vector<CharKinds> rest_;    // [token]: of all characters but the first
  std::vector<uint8_t> first_;     // [token]: the kind of the first character
  std::vector<uint16_t> n_chars_;  // [token]; 0: the token is not plain
  std::vector<int32_t> by_length_;
  std::vector<uint32_t> shorter_;  // [n]: how many of by_length_ have fewer than n characters
  mutable std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();  // of what follows
  mutable std::map<Key, Made> made_;
};

}  // namespace ingot
