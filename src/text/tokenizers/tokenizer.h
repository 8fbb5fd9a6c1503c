// Text to token ids and back. One tokenizer serves any number of threads, because nothing in it changes after create().
//
// decode(encode(text)) is exactly text, for any bytes. Exceptions: strip rules, normalizers, Metaspace's treatment of
// leading spaces, U+2581 in SentencePiece models, and vocabularies without byte tokens. Text that is not UTF-8 becomes
// byte tokens; no byte is replaced. WordPiece and Unigram, the tokenizers of encoders, lose more: spaces, case,
// accents; bytes that are not UTF-8 become U+FFFD first.
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
  bool add_special = true;  // add BOS and EOS, if the model needs them
  bool parse_special =
      false;  // recognise control tokens such as <|im_start|> in the text; only for the output of a template
  bool repeats_bos = false;  // add BOS even if the text begins with BOS, as in llama.cpp and Hugging Face
  std::span<const size_t> quoted = {};  // ascending offsets of bytes at which no control token begins
};

struct TokenizerKind;

class Tokenizer {
 public:
  // Throws Error for a specification that is malformed or of an unsupported kind.
  static std::unique_ptr<Tokenizer> create(const TokenizerSpec& spec);

  // First finds user-defined tokens, leftmost and longest, and with parse_special also control tokens. Cuts and merges
  // the remaining text. If the text begins with BOS, no second BOS is added, unless the options ask for it. Throws
  // Error for a text over 1 GiB.
  std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const;

  // Encodes two texts as one, as BERT reads a question and an answer: BOS, the first text, the model's separator
  // tokens, the second text, EOS. If that exceeds max_tokens, tokens are cut from the ends of the texts, the longer
  // text first. n_first: the number of tokens before the second text. Throws Error if the tokenizer joins pairs
  // differently.
  std::vector<int32_t> encode_pair(std::string_view first, std::string_view second, size_t max_tokens,
                                   size_t& n_first) const;

  // Whether the tokens of a pair have type 1 from the second text on. Otherwise all tokens have type 0.
  bool marks_second() const { return pair_types_ == PairTypes::kSecond; }

  // The bytes of the tokens. A control token decodes to its name, or to nothing with skip_special. Throws Error for an
  // id outside of the vocabulary.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // decode(), token by token (text/stream_decoder.h). at_start: the token is at the start of the text or follows an
  // added token, so a SentencePiece model's leading space is dropped. The call updates at_start for the next token.
  void append_decoded(int32_t id, bool skip_special, bool& at_start, std::string& out) const;

  // The text of a token, and its spelling in the checkpoint.
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
  bool is_end(int32_t id) const { return vocab_.is_end(checked(id)); }  // the token ends an answer
  std::vector<int32_t> end_tokens() const;                              // all tokens that end an answer
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
