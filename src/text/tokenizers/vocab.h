// The token table: spelling, bytes, type and score of each id, the special ids, and the tokens that end an answer.
// Checks everything that a hostile file could get wrong, so the encoders need no checks.
#pragma once
#include <array>
#include <unordered_map>

#include "text/tokenizers/tokenizer_spec.h"

namespace ingot {

enum class Spelling {
  kGpt2,           // bytes as GPT-2's printable characters
  kSentencePiece,  // U+2581 for a space, <0x41> for a lone byte
  kWordPiece,      // U+2581 for the space that begins every word
  kEscaped,        // bytes as in Python's literals (world.h)
};

class Vocab {
 public:
  // Throws Error for a table that contradicts itself. Special ids outside of the table are dropped with a warning.
  Vocab(const TokenizerSpec& spec, Spelling spelling);
  Vocab(const Vocab&) = delete;  // index_ views text_
  Vocab& operator=(const Vocab&) = delete;

  int32_t size() const { return static_cast<int32_t>(text_.size()); }
  const std::string& text(int32_t id) const { return text_[id]; }    // the checkpoint's spelling
  const std::string& bytes(int32_t id) const { return bytes_[id]; }  // the bytes in text
  float score(int32_t id) const { return scores_.empty() ? 0.0f : scores_[id]; }
  TokenType type(int32_t id) const { return types_[id]; }
  bool is_special(int32_t id) const { return type(id) == TokenType::kControl || type(id) == TokenType::kUnknown; }
  bool is_added(int32_t id) const { return is_special(id) || type(id) == TokenType::kUserDefined; }
  bool is_end(int32_t id) const { return ends_[id]; }

  // The token with this spelling (the first, if several), or nothing.
  std::optional<int32_t> find(std::string_view text) const;
  // The token for a single byte, or -1.
  int32_t byte_token(unsigned char byte) const { return byte_tokens_[byte]; }

  std::optional<int32_t> bos, eos, eot, eom, unk, pad;

 private:
  void read_types(const TokenizerSpec& spec);
  void read_tokens(const TokenizerSpec& spec, Spelling spelling);
  void read_sentencepiece_bytes(const TokenizerSpec& spec);
  void read_special_ids(const TokenizerSpec& spec);
  void mark_ends(const TokenizerSpec& spec);
  std::string bytes_of(int32_t id, Spelling spelling) const;

  std::vector<std::string> text_, bytes_;
  std::vector<float> scores_;
  std::vector<TokenType> types_;
  std::vector<bool> ends_;
  std::array<int32_t, 256> byte_tokens_;
  std::unordered_map<std::string_view, int32_t> index_;
};

}  // namespace ingot
