// SentencePiece BPE (Llama 1 and 2, TinyLlama, Mistral, Gemma): there is no pre-tokenizer. The characters of the whole
// text merge by the score of the result, or by a list of merges if the checkpoint has one (Hugging Face's
// tokenizer.json). A space is written U+2581, so a U+2581 in the text counts as a space, as in SentencePiece itself. A
// character without a token becomes byte tokens.
#pragma once
#include "text/tokenizers/merge_table.h"
#include "text/tokenizers/subword.h"
#include "text/tokenizers/vocab.h"

namespace ingot {

class Spm : public Subword {
 public:
  // Throws Error if some text could not be encoded: no byte tokens and no unknown token. Keeps a reference to vocab.
  Spm(const Vocab& vocab, const TokenizerSpec& spec, bool add_space_prefix);

  void encode(std::string_view text, bool at_start, std::vector<int32_t>& ids) const override;

 private:
  struct Scratch {
    std::string escaped;
    std::vector<Symbol> symbols;
    MergeQueue queue;
  };
  size_t next_cut(std::string_view text, size_t from) const;
  void encode_part(std::string_view text, bool space_prefix, Scratch& scratch, std::vector<int32_t>& ids) const;
  void append_symbol(std::string_view character, Scratch& scratch) const;
  std::optional<Merge> find_merge(std::string_view escaped, const Symbol& left, const Symbol& right) const;
  void append_bytes(std::string_view bytes, std::vector<int32_t>& ids) const;
  int32_t piece(std::string_view text) const;

  const Vocab& vocab_;
  bool add_space_prefix_;
  PrefixRule prefix_rule_;
  std::optional<MergeTable> merges_;
  size_t longest_piece_ = 0;
  bool cut_at_spaces_ = true;  // no piece has a space after another character, so words never merge with each other
  std::unordered_map<std::string_view, int32_t> pieces_;  // pieces of text: no control, unknown or byte tokens
  std::vector<uint32_t> ranks_;                           // by id: higher scores have lower ranks
};

}  // namespace ingot
