// Byte-level BPE (GPT-2 and what came after it): the pre-tokenizer cuts text into words, the bytes of each word merge
// by rank. Every byte has a token in a complete vocabulary, so any text comes back from its ids as it was.
#pragma once
#include "text/tokenizers/merge_table.h"
#include "text/tokenizers/pretokenizer.h"
#include "text/tokenizers/pretokenizer_table.h"
#include "text/tokenizers/subword.h"
#include "text/tokenizers/vocab.h"

namespace ingot {

class Bpe : public Subword {
 public:
  // Throws Error for merges that are malformed, repeated, or made of tokens that do not exist. Keeps a reference to
  // vocab.
  Bpe(const Vocab& vocab, const TokenizerSpec& spec, const PretokenizerRow& row);

  void encode(std::string_view text, bool at_start, std::vector<int32_t>& ids) const override;

 private:
  void encode_word(std::string_view word, std::vector<Symbol>& symbols, MergeQueue& queue,
                   std::vector<int32_t>& ids) const;
  std::optional<int32_t> whole_word(std::string_view word) const;

  const Vocab& vocab_;
  Pretokenizer pretokenizer_;
  MergeTable merges_;
  bool prefix_space_;
  std::unordered_map<std::string_view, int32_t>
      words_;  // by bytes; filled only for models that look up whole words first
};

}  // namespace ingot
