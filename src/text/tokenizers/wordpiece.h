// WordPiece (BERT and its successors): takes the longest token at the start of a word, then repeatedly the longest
// token that continues the word, until the word ends. If no token fits at some point, the whole word becomes one
// unknown token. The vocabulary has GGUF's spelling: U+2581 before tokens that begin a word, nothing before tokens that
// continue it.
#pragma once
#include "text/tokenizers/pretokenizer.h"
#include "text/tokenizers/subword.h"
#include "text/tokenizers/trie.h"
#include "text/tokenizers/vocab.h"

namespace ingot {

class WordPiece : public Subword {
 public:
  // Throws Error if there is no unknown token. Keeps a reference to vocab.
  WordPiece(const Vocab& vocab, const TokenizerSpec& spec);

  void encode(std::string_view text, bool at_start, std::vector<int32_t>& ids) const override;

 private:
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const;

  const Vocab& vocab_;
  Pretokenizer pretokenizer_;
  size_t max_word_chars_;
  Trie starts_, rests_;
};

// The rules that cut text into words for BERT: white space is dropped, and a punctuation mark is a separate word.
std::vector<CutRule> bert_cuts();
// The changes to text before it is cut. strip_accents: if absent, accents are stripped when `lowercase` is set.
std::vector<NormalizerStep> bert_normalizer(bool clean, bool space_cjk, std::optional<bool> strip_accents,
                                            bool lowercase);

}  // namespace ingot
