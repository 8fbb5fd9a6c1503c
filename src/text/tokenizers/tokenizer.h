// Text to token ids and back. One tokenizer serves any number of threads; nothing in it changes after create().
//
// decode(encode(text)) is text, byte for byte, for any bytes at all (bar strip rules, normalizers, Metaspace's way with
// leading spaces, U+2581 in SentencePiece models, and vocabularies without byte tokens). Where the text is not UTF-8,
// its bytes become byte tokens; nothing is replaced. WordPiece and Unigram, which serve encoders, lose more: spaces,
// case, accents; bytes that are not UTF-8 become U+FFFD first.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "text/tokenizers/added_tokens.h"
#include "text/tokenizers/normalizer.h"
#include "text/tokenizers/subword.h"
#include "text/tokenizers/vocab.h"

namespace ingot {

struct EncodeOptions {
  bool add_special = true;  // BOS and EOS, where the model wants them
  bool parse_special =
      false;  // recognise control tokens such as <|im_start|> in the text: for a template's output only
  bool repeats_bos = false;  // BOS goes before a text that begins with one, too, as in llama.cpp and Hugging Face
  std::span<const size_t> quoted = {};  // ascending offsets of bytes that are never part of a control token
};

struct TokenizerKind;

class Tokenizer {
 public:
  // Throws Error for a specification that is malformed, or of a kind that is not supported.
  static std::unique_ptr<Tokenizer> create(const TokenizerSpec& spec);

  // User-defined tokens are found first, leftmost and longest, and control tokens with parse_special; the rest is cut
  // and merged. A BOS that is already in front is not doubled, unless
  // options say so. Throws Error for a text past 1 GiB.
  std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const;

  // Two texts that are read as one, as BERT reads a question and an answer: BOS, the first, what the model puts between
  // them, the second, EOS. Where that is more than max_tokens, the ends of the texts go, the longer one's first.
  // n_first: the tokens before the second text. Throws Error where the tokenizer puts pairs together in another way.
  std::vector<int32_t> encode_pair(std::string_view first, std::string_view second, size_t max_tokens,
                                   size_t& n_first) const;

  // Are the tokens of a pair from the second text on of type 1? Otherwise all are of type 0.
  bool marks_second() const { return pair_types_ == PairTypes::kSecond; }

  // The bytes that the tokens stand for; control tokens by their names, or not at all with skip_special.
  // Throws Error for an id outside of the vocabulary.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // decode(), token by token (text/stream_decoder.h). at_start says that the token begins the text or follows an added
  // token, where a SentencePiece model's leading space is dropped; it is updated for the next one.
  void append_decoded(int32_t id, bool skip_special, bool& at_start, std::string& out) const;

  // What a token stands for within a text, and how the checkpoint spells it.
  std::string_view token_bytes(int32_t id) const { return vocab_.bytes(checked(id)); }
  std::string_view token_text(int32_t id) const { return vocab_.text(checked(id)); }
  std::optional<int32_t> find(std::string_view token_text) const { return vocab_.find(token_text); }

  int32_t n_vocab() const { return vocab_.size(); }
  std::optional<int32_t> bos() const { return vocab_.bos; }
  std::optional<int32_t> eos() const { return vocab_.eos; }
  std::optional<int32_t> eot() const { return vocab_.eot; }
  std::optional<int32_t> eom() const { return vocab_.eom; }
  std::optional<int32_t> unk() const { return vocab_.unk; }
  std::optional<int32_t> pad() const { return vocab_.pad; }
  bool add_bos() const { return add_bos_; }
  bool add_eos() const { return add_eos_; }
  bool add_space_prefix() const { return add_space_prefix_; }
  bool is_end(int32_t id) const { return vocab_.is_end(checked(id)); }  // it ends an answer
  std::vector<int32_t> end_tokens() const;                              // all of these
  bool is_special(int32_t id) const { return vocab_.is_special(checked(id)); }
  TokenType type(int32_t id) const { return vocab_.type(checked(id)); }
  const std::string& model() const { return model_; }
  const std::string& pre() const { return pre_; }

 private:
  explicit Tokenizer(const TokenizerSpec& spec);
  void read_flags(const TokenizerSpec& spec, bool add_bos);
  std::unique_ptr<Subword> make_subword(const TokenizerSpec& spec);
  void encode_plain(std::string_view text, bool at_start, std::vector<int32_t>& ids) const;
  void collect_added_tokens(const TokenizerSpec& spec);
  void encode_body(std::string_view text, const EncodeOptions& options, std::vector<int32_t>& ids) const;
  AddedTokens::Match next_added(std::string_view text, size_t from, const EncodeOptions& options) const;
  int32_t checked(int32_t id) const;

  std::string model_, pre_;
  const TokenizerKind& kind_;
  Normalizer normalizer_;
  PrefixRule prefix_rule_;
  Vocab vocab_;
  std::vector<int32_t> pair_between_;
  PairTypes pair_types_;
  bool pair_is_known_;
  bool add_bos_ = false, add_eos_ = false, add_space_prefix_ = false;
  AddedTokens user_defined_, all_added_;
  std::unordered_map<int32_t, StripRule> strips_;
  std::unique_ptr<Subword> subword_;
};

}  // namespace ingot
