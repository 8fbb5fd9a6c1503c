// Which regular expressions cut text into words for which model family, by the names of GGUF's tokenizer.ggml.pre.
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
      false;             // a word that is a token is that token, whatever its merges say (tokenizers' ignore_merges)
  bool add_bos = false;  // unless the file says
};

// The row for a name. An empty or unknown one gets the row "default", with a warning.
const PretokenizerRow& find_pretokenizer(std::string_view name);

// The name that GGUF has for these expressions, to the letter: the first of the row's names, or nothing.
std::optional<std::string_view> pretokenizer_name(std::span<const std::string> patterns, bool whole_words);

// Of published expressions that take quadratic time (as tokenizer.json has them): others that cut the same in linear
// time. Nothing for any other.
std::span<const std::string_view> linear_expressions(std::string_view published);

// Is this byte pair encoding as SentencePiece writes it: over characters, with spaces as U+2581?
bool is_sentencepiece_like(std::string_view pre);

std::span<const PretokenizerRow> pretokenizer_rows();

}  // namespace ingot
