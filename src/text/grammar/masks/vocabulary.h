// GrammarVocabulary: the tokens of a model, prepared for grammars: a trie of their bytes, and tables of the tokens that
// are plain text of a JSON string, because most of a document is plain text. Built once per model; thread-safe.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/grammar/masks/plain_tokens.h"
#include "text/grammar/masks/token_trie.h"

namespace ingot {

// A set of closers: tokens that close a string and may continue after the quote. Bit i of the set is closer i.
using CloserSet = std::vector<uint64_t>;

inline void add_closer(CloserSet& set, int32_t closer) {
  set[static_cast<size_t>(closer) / 64] |= uint64_t{1} << (static_cast<uint32_t>(closer) % 64);
}

// A control token has no text. In a grammar, it is this byte, which never occurs in UTF-8, followed by the token's
// name.
inline constexpr char kControlByte = '\xff';

class GrammarVocabulary {
 public:
  // The tokens of a text, as the model's tokenizer splits it.
  using Encode = std::function<std::vector<int32_t>(std::string_view text)>;

  // bytes: the text of each token, or kControlByte and the name of a control token; empty: never allowed as text. ends:
  // the tokens that end an answer. encode: may be called from any thread; empty if no tokenizer is known.
  GrammarVocabulary(std::vector<std::string> bytes, std::vector<int32_t> ends, Encode encode = {});
  GrammarVocabulary(const GrammarVocabulary&) = delete;  // trie_ views bytes_
  GrammarVocabulary& operator=(const GrammarVocabulary&) = delete;

  int32_t size() const { return static_cast<int32_t>(bytes_.size()); }
  const std::string& bytes(int32_t token) const { return bytes_[static_cast<size_t>(token)]; }
  const std::vector<int32_t>& ends() const { return ends_; }
  bool is_end(int32_t token) const { return allows_token(end_mask_, token); }
  const Encode& encode() const { return encode_; }
  const TokenTrie& trie() const { return trie_; }
  TokenMask empty_mask() const { return TokenMask(end_mask_.size()); }

  const PlainTokens& plain() const { return plain_; }

  // Closers are numbered by the characters before the quote, fewest first.
  // Trie of the bytes up to and including the quote; its tokens are closers.
  const TokenTrie& closers_tree() const { return closers_tree_; }
  // Trie of the bytes after the quote; its tokens are closers.
  const TokenTrie& after_closers() const { return after_closers_; }
  const std::vector<int32_t>& closers() const { return closers_; }  // [closer]: its token
  CloserSet no_closers() const { return CloserSet((closers_.size() + 63) / 64); }
  CloserSet closers_with(int min, int max) const;  // min and max characters before the quote; max -1: no limit

  // Tokens that are neither plain nor closers.
  const TokenTrie& odd() const { return odd_; }

  // Tokens that may continue a string of any characters, with at most `max` characters (-1: no limit).
  const TokenMask& free_text(int max) const;
  const std::vector<int32_t>& escaped_closers() const { return escaped_closers_; }  // tokens, not closer numbers

  // The tokens that close a string and also close or open more: an object, an array, another string.
  const std::vector<int32_t>& far_closers() const { return far_closers_; }
  // The tokens that close a string after exactly this text. The text must need no escape.
  std::span<const int32_t> closers_of(const std::string& text) const;
  // The bytes of a closer after the quote.
  std::string_view text_after_quote(int32_t token) const {
    return std::string_view(bytes(token)).substr(contents_[static_cast<size_t>(token)].n_bytes);
  }

 private:
  struct Content {  // a token as text of a string
    enum class Kind : uint8_t { kNone, kInside, kCloses } kind = Kind::kNone;
    uint16_t n_chars = 0;   // characters begun before the end of the token or the quote
    uint16_t n_bytes = 0;   // bytes up to and including the closing quote
  };
  void read_contents();
  void make_trees();
  bool has_escape(int32_t token) const;

  std::vector<std::string> bytes_;
  std::vector<int32_t> ends_;
  const Encode encode_;
  TokenMask end_mask_;
  TokenTrie trie_;
  PlainTokens plain_;
  TokenTrie closers_tree_, after_closers_, odd_;
  std::vector<Content> contents_;
  std::vector<int32_t> closers_, escaped_closers_;
  std::vector<int32_t> by_length_;  // tokens that leave a string open, fewest characters first
  std::unordered_map<std::string, std::vector<int32_t>> closers_of_;
  std::vector<int32_t> far_closers_;
  int longest_ = 0;  // the most characters of a token
  mutable std::mutex mutex_;
  mutable std::map<int, TokenMask> free_;
};

}  // namespace ingot
