// TokenizerSpec: the tokenizer data of a checkpoint, independent of file formats. The readers of src/io fill in the
// fields. Tokenizer::create checks and copies the data, so the views must stay valid only until create() returns.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// GGUF's numbers for tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
  kUndefined = 0,  // treated as kNormal
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // <|im_start|>: made only by templates, never by a user's text
  kUserDefined = 4,  // recognised in any text, before all other tokens
  kUnused = 5,
  kByte = 6,  // <0x41>: one byte, SentencePiece's fallback
};

// An added token that absorbs the white space on its sides (Hugging Face's lstrip and rstrip).
struct StripRule {
  int32_t id;
  bool left;
  bool right;
};

// GGUF's names for the kinds of tokenizers.
inline constexpr std::string_view kByteLevelBpe = "gpt2", kSentencePieceBpe = "llama", kWordPieceModel = "bert",
                                  kUnigramModel = "t5", kWorldModel = "rwkv",
                                  kSentencePieceBpeByMerges = "gemma4";  // has merges, and no scores

// Where add_space_prefix puts its space: before every part of the text between added tokens, as in SentencePiece, or as
// in Hugging Face's Metaspace.
enum class PrefixRule : uint8_t { kEveryPart, kUnlessSpace, kFirstUnlessSpace };

// One change to a text before it is cut into tokens (normalizer.h). The steps apply in order, as in tokenizer.json.
struct NormalizerStep {
  enum class Kind : uint8_t {
    kNfc, kNfd, kNfkc, kNfkd,
    kLowercase,
    kStripMarks,      // BERT's strip_accents, after NFD: removes nonspacing marks
    kStripAccents,    // removes marks of any kind
    kCleanText,       // BERT's: removes control characters; white space becomes spaces
    kSpaceCjk,        // puts spaces around Chinese characters
    kNmt,             // SentencePiece's clean-up of controls and odd spaces
    kReplace,         // replaces `from` with `to`
    kReplacePattern,  // replaces matches of the expression `from` with `to`
    kPrepend,         // puts `to` in front of a text that is not empty
    kStrip,           // removes white space at the ends: `left`, `right`
    kCharsmap,        // SentencePiece's compiled table (text/tokenizers/charsmap.h), in `from`; see by_grapheme
  };
  Kind kind;
  std::string from = {}, to = {};
  bool left = true, right = true;
  bool by_grapheme = false;  // applies kCharsmap as Hugging Face does
};

// The pieces that an expression cuts: its matches, the text between the matches, or both.
enum class Cut : uint8_t { kIsolate /* both are pieces */, kDropMatches, kDropRest };
struct CutRule {
  std::string pattern;
  Cut cut;
};

// The token types of two texts that are read as one: all 0; 1 from the second text on; or other types.
enum class PairTypes : uint8_t { kNone, kSecond, kOther };

struct TokenizerSpec {
  std::string source;  // the file's name, for messages
  std::string model;   // one of the names above
  std::string pre;     // the pre-tokenizer's name, for byte-level BPE (text/tokenizers/pretokenizer_table.h)
  std::optional<std::vector<std::string>> patterns;  // replaces `pre`: the expressions themselves, in PCRE2's syntax
  bool whole_words = false;  // with patterns: a word that is a token stays that token, even if the merges differ
  bool prefix_space = false;  // byte-level BPE: puts a space before a text that does not begin with one
  std::vector<NormalizerStep> normalize;
  std::vector<CutRule> cuts;  // WordPiece and Unigram: the rules that cut words
  bool split_words = false;   // Unigram: no token spans a space
  bool tidy_decode = false;   // WordPiece: no space before . ? ! and , when decoding
  int max_word_chars = 100;   // WordPiece: longer words are unknown
  std::vector<std::string_view> tokens;
  std::vector<float> scores;             // for SentencePiece: higher merges first; for Unigram log probabilities
  std::vector<int32_t> token_types;      // TokenType; may be absent
  std::vector<std::string_view> merges;  // "left right", best first; SentencePiece BPE may have these instead of scores
  std::vector<StripRule> strips;
  std::optional<int64_t> bos, eos, eot, eom, unk, pad;
  std::vector<int64_t> ends;  // more tokens that end an answer
  std::optional<bool> add_bos, add_eos, add_space_prefix;
  // The tokens between two texts that are read as one. EOS also follows the second text.
  std::vector<int64_t> pair_between;
  PairTypes pair_types = PairTypes::kSecond;
  bool pair_is_known = true;  // false: a pair has other tokens at its ends than a single text
  PrefixRule prefix_rule = PrefixRule::kEveryPart;
};

}  // namespace ingot
