// Unigram (SentencePiece's language model of pieces; T5, XLM-RoBERTa and the embedding models derived from it). Splits
// a text into the sequence of pieces with the highest probability, which Viterbi's algorithm finds over the pieces that
// begin at each character. A character that is not a piece can be read as unknown, with a score below that of the
// rarest piece. Adjacent unknown characters join, and become byte tokens if the vocabulary has byte tokens.
#pragma once
#include "text/tokenizers/pretokenizer.h"
#include "text/tokenizers/subword.h"
#include "text/tokenizers/trie.h"
#include "text/tokenizers/vocab.h"

namespace ingot {

class Unigram : public Subword {
 public:
  // Throws Error if there are no scores or no unknown token. Keeps a reference to vocab.
  Unigram(const Vocab& vocab, const TokenizerSpec& spec, bool add_space_prefix);

  void encode(std::string_view text, bool at_start, std::vector<int32_t>& ids) const override;

 private:
  struct Best {
    double score;
    uint32_t length;  // of the last piece; 0: no piece ends here
    int32_t id;
  };
  void encode_piece(std::string_view piece, bool prefix, std::vector<int32_t>& ids) const;
  void encode_marked(std::string_view text, std::vector<Best>& best, std::vector<int32_t>& ids) const;
  void append_unknown(std::string_view text, std::vector<int32_t>& ids) const;

  const Vocab& vocab_;
  Pretokenizer pretokenizer_;
  bool add_space_prefix_, split_words_;
  PrefixRule prefix_rule_;
  Trie trie_;
  double unknown_score_ = 0;
};

}  // namespace ingot
