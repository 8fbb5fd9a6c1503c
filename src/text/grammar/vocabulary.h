// The tokens of a model as grammars see them: a tree of their bytes, and what of them is plain text of a JSON string,
// which most of a document is. Made once for a model; safe for use by any number of threads.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/grammar/plain_tokens.h"
#include "text/grammar/token_trie.h"

namespace ingot {

// A set of closers: tokens that close a string, and may go on behind the quote. Bit i of it is closer i.
using CloserSet = std::vector<uint64_t>;

inline void add_closer(CloserSet& set, int32_t closer) {
  set[static_cast<size_t>(closer) / 64] |= uint64_t{1} << (static_cast<uint32_t>(closer) % 64);
}

class GrammarVocabulary {
 public:
  // bytes: of each token, in text; empty for a token that text cannot have (a control token). ends: the tokens that
  // end an answer.
  GrammarVocabulary(std::vector<std::string> bytes, std::vector<int32_t> ends);
  GrammarVocabulary(const GrammarVocabulary&) = delete;  // trie_ views bytes_
  GrammarVocabulary& operator=(const GrammarVocabulary&) = delete;

  int32_t size() const { return static_cast<int32_t>(bytes_.size()); }
  const std::string& bytes(int32_t token) const { return bytes_[static_cast<size_t>(token)]; }
  const std::vector<int32_t>& ends() const { return ends_; }
  bool is_end(int32_t token) const { return allows_token(end_mask_, token); }
  const TokenTrie& trie() const { return trie_; }
  TokenMask empty_mask() const { return TokenMask(end_mask_.size()); }

  const PlainTokens& plain() const { return plain_; }

  // Closers, those with fewer characters before the quote first.
  const TokenTrie& closers_tree() const { return closers_tree_; }  // to the quote, and with it; its tokens are closers
  const TokenTrie& after_closers() const { return after_closers_; }  // what follows the quote; its tokens are closers
  const std::vector<int32_t>& closers() const { return closers_; }   // the token of each
  CloserSet no_closers() const { return CloserSet((closers_.size() + 63) / 64); }
  CloserSet closers_with(int min, int max) const;  // characters before the quote; max: -1 for any number

  // Tokens that are neither plain nor closers.
  const TokenTrie& odd() const { return odd_; }

  // Tokens that a string with any characters may go on with, at most `max` of them (-1: no limit).
  const TokenMask& free_text(int max) const;
  const std::vector<int32_t>& escaped_closers() const { return escaped_closers_; }  // tokens, not numbers

  // The tokens that close a string and then more than that: an object, an array, another string.
  const std::vector<int32_t>& far_closers() const { return far_closers_; }
  // The tokens that close a string after exactly this text, which needs no escape.
  std::span<const int32_t> closers_of(const std::string& text) const;
  // Of a closer's bytes, those behind the quote.
  std::string_view behind_quote(int32_t token) const {
    return std::string_view(bytes(token)).substr(contents_[static_cast<size_t>(token)].n_bytes);
  }

 private:
  struct Content {  // of a token, as text of a string
    enum class Kind : uint8_t { kNone, kInside, kCloses } kind = Kind::kNone;
    uint16_t n_chars = 0;   // begun before it ends or closes
    uint16_t n_bytes = 0;   // to the closing quote, and with it
  };
  void read_contents();
  void make_trees();
  bool has_escape(int32_t token) const;

  std::vector<std::string> bytes_;
  std::vector<int32_t> ends_;
  TokenMask end_mask_;
  TokenTrie trie_;
  PlainTokens plain_;
  TokenTrie closers_tree_, after_closers_, odd_;
  std::vector<Content> contents_;
  std::vector<int32_t> closers_, escaped_closers_;
  std::vector<int32_t> by_length_;  // tokens that leave a string open, those with fewer characters first
  std::unordered_map<std::string, std::vector<int32_t>> closers_of_;
  std::vector<int32_t> far_closers_;
  int longest_ = 0;  // characters of a token
  mutable std::mutex mutex_;
  mutable std::map<int, TokenMask> free_;
};

}  // namespace ingot
