// Byte-level BPE (GPT-2 and its successors): the pre-tokenizer cuts text into words, and the bytes of each word are
// merged by rank. A complete vocabulary has a token for every byte, so ids decode to exactly the original text.
#pragma once
#include "text/tokenizers/merge_table.h"
#include "text/tokenizers/pretokenizer.h"
#include "text/tokenizers/pretokenizer_table.h"
#include "text/tokenizers/subword.h"
#include "text/tokenizers/vocab.h"

namespace ingot {

class Bpe : public Subword {
 public:
  // Throws Error for merges that are malformed, repeated, or contain a token that does not exist. Keeps a reference to
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
      words_;  // the words by their bytes; filled only for models that look up whole words first
};

}  // namespace ingot
