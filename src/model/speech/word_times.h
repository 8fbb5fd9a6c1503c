// When each word was said: the tokens of a text are aligned with the sound that the decoder looked at when it wrote
// them, by dynamic time warping (Whisper's word times, as OpenAI's code computes them).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizers/tokenizer.h"

namespace ingot {

// Some tokens of a text that are a word, or characters.
struct WordTokens {
  std::string text;
  size_t n_tokens = 0;
};

// Cuts a text into its tokens; a character that has several stays whole. The tokens add up to all tokens.
std::vector<WordTokens> characters_of(const Tokenizer& tokenizer, std::span<const int32_t> tokens);

// Cuts a text into words: at spaces and punctuation, or, in languages without spaces (zh, ja, th, lo, my, yue), at each
// character. Punctuation then joins the word beside it. The tokens of the words add up to all tokens.
std::vector<WordTokens> words_of(const Tokenizer& tokenizer, std::span<const int32_t> tokens,
                                 std::string_view language);

// The row of the sound at which each of the tokens [first, first + n) begins. shares: [n_heads, n_tokens, n_rows], the
// attention of all tokens to the sound.
std::vector<int> token_starts(std::span<const float> shares, int n_heads, int n_tokens, int n_rows, int first, int n);

}  // namespace ingot
