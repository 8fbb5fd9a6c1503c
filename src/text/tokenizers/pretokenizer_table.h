// The regular expressions that cut text into words, by model family, under the names of GGUF's tokenizer.ggml.pre.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ingot {

struct PretokenizerRow {
  std::span<const std::string_view> names;
  std::span<const std::string_view> patterns;  // applied in turn (text/tokenizers/pretokenizer.h)
  bool whole_words =
      false;             // a word that is a token stays that token, whatever its merges say (tokenizers' ignore_merges)
  bool add_bos = false;  // unless the file sets it
};

// The row for a name. An empty or unknown name gets the row "default", with a warning.
const PretokenizerRow& find_pretokenizer(std::string_view name);

// GGUF's name for exactly these expressions: the first name of the row, or nothing.
std::optional<std::string_view> pretokenizer_name(std::span<const std::string> patterns, bool whole_words);

// If `published`, as spelled in tokenizer.json, takes quadratic time: expressions that cut the same way in linear time.
// Empty for any other expression.
std::span<const std::string_view> linear_expressions(std::string_view published);

// Whether this is byte pair encoding as in SentencePiece: over characters, with spaces as U+2581.
bool is_sentencepiece_like(std::string_view pre);

std::span<const PretokenizerRow> pretokenizer_rows();

}  // namespace ingot
