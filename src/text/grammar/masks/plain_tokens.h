// PlainTokens: the tokens that are plain text in a JSON string: whole characters without quotes, escapes and control
// characters. Most tokens are plain. This class finds the tokens made of given characters without walking through the
// trie.
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

#include "text/grammar/masks/token_trie.h"

namespace ingot {

using TokenMask = std::vector<uint32_t>;  // [ceil(n_tokens / 32)]: bit i % 32 of word i / 32 is token i

inline void allow_token(TokenMask& mask, int32_t token) {
  mask[static_cast<size_t>(token) / 32] |= 1u << (static_cast<uint32_t>(token) % 32);
}
inline bool allows_token(const TokenMask& mask, int32_t token) {
  return mask[static_cast<size_t>(token) / 32] >> (static_cast<uint32_t>(token) % 32) & 1u;
}

// A set of kinds of characters. Each ASCII character is a kind; all other characters are one kind, at the index of NUL.
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
  // Whether `c` is one of the characters beyond ASCII that patterns treat differently (\s, \S and the dot do). No plain
  // token contains such a character.
  static bool is_special(char32_t c);
  static bool is_plain(std::string_view bytes);

  PlainTokens() = default;
  explicit PlainTokens(const std::vector<std::string>& bytes);  // bytes of all tokens, indexed by id

  const TokenTrie& trie() const { return trie_; }
  struct Below {
    CharKinds kinds;     // kinds of the characters that begin below the node
    uint16_t max_chars = 0;   // the most characters of a token at or below the node, counted from the root
  };
  const Below& below(uint32_t node) const { return below_[node]; }

  // The tokens with a first character in `first`, all other characters in `rest`, and at most `max_chars` characters.
  // Any thread may call this function.
  std::shared_ptr<const TokenMask> mask(const CharKinds& first, const CharKinds& rest, int max_chars) const;

 private:
  struct Made {
    std::shared_ptr<const TokenMask> mask;
    int longest = 0;  // the most characters of a token in the mask
  };
  using Key = std::tuple<CharKinds, CharKinds, int>;
  Made all(const CharKinds& first, const CharKinds& rest) const;
  Made without_longer(const Made& made, int max_chars) const;

  TokenTrie trie_;
  std::vector<Below> below_;      // [node]
  std::vector<CharKinds> rest_;   // [token]: kinds of all characters after the first
  std::vector<uint8_t> first_;    // [token]: the kind of the first character
  std::vector<uint16_t> n_chars_; // [token]; 0: the token is not plain
  std::vector<int32_t> by_length_;
  std::vector<uint32_t> shorter_;  // [n]: number of entries of by_length_ with fewer than n characters
  mutable std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();  // guards the members below
  mutable std::map<Key, Made> made_;
};

}  // namespace ingot
