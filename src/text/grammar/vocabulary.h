// The tokens of a model as grammars see them: a tree of their bytes, and what of them is plain text of a JSON string,
// which most of a document is. Made once for a model; safe for use by any number of threads.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
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

class GrammarVocabulary {
 public:
  // The tokens of a text, as the model's tokenizer cuts it.
  using Encode = std::function<std::vector<int32_t>(std::string_view text)>;

  // bytes: of each token, in text; empty for a token that text cannot have (a control token). ends: the tokens that
  // end an answer. encode: called from any thread; empty where no tokenizer is known.
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

  // Within a string that may have any characters, at least `min` and at most `max` more (-1: no limit).
  struct FreeText {
    TokenMask inside;  // tokens that leave the string open
    TokenTrie after;   // of tokens that close it: what follows the quote
    std::vector<int32_t> escaped;  // tokens that close it and have an escape: not in `after`
  };
  const FreeText& free_text(int min, int max) const;
  // The tokens that close a string and then more than that: an object, an array, another string.
  const std::vector<int32_t>& far_closers() const { return far_closers_; }
  // The tokens that close a string after exactly this text, which needs no escape.
  std::span<const int32_t> closers(const std::string& text) const;

 private:
  struct Content {  // of a token, as text of a string
    enum class Kind : uint8_t { kNone, kInside, kCloses } kind = Kind::kNone;
    uint16_t n_chars = 0;   // begun before it ends or closes
    uint16_t n_bytes = 0;   // to the closing quote, and with it
  };
  void read_contents();
  bool has_escape(int32_t token) const;

  std::vector<std::string> bytes_;
  std::vector<int32_t> ends_;
  const Encode encode_;
  TokenMask end_mask_;
  TokenTrie trie_;
  std::vector<Content> contents_;
  std::unordered_map<std::string, std::vector<int32_t>> closers_;
  std::vector<int32_t> far_closers_;
  int longest_ = 0;  // characters of a token
  mutable std::mutex mutex_;
  mutable std::map<std::pair<int, int>, std::unique_ptr<FreeText>> free_;
};

}  // namespace ingot
