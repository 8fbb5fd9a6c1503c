// WordPiece (BERT and its kin): the longest token that begins a word, then the longest that goes on, to its end. A word
// that cannot be made that way is the unknown token, whole. The vocabulary is spelled as GGUF has it: U+2581 before
// what begins a word, nothing before what goes on.
#pragma once
#include "text/tokenizers/pretokenizer.h"
#include "text/tokenizers/subword.h"
#include "text/tokenizers/trie.h"
#include "text/tokenizers/vocab.h"

namespace ingot {

class WordPiece : public Subword {
 public:
  // Throws Error when there is no unknown token. Keeps a reference to vocab.
  WordPiece(const Vocab& vocab, const TokenizerSpec& spec);

  void encode(std::string_view text, bool at_start, std::vector<int32_t>& ids) const override;

 private:
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const;

  const Vocab& vocab_;
  Pretokenizer pretokenizer_;
  size_t max_word_chars_;
  Trie starts_, rests_;
};

// What cuts text into words for BERT: white space is dropped, a punctuation mark is a word of its own.
std::vector<CutRule> bert_cuts();
// How its text is changed first. strip_accents: nothing: when lowercase.
std::vector<NormalizerStep> bert_normalizer(bool clean, bool space_cjk, std::optional<bool> strip_accents,
                                            bool lowercase);

}  // namespace ingot
