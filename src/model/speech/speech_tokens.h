// The tokens of a Whisper model that are not text: languages, tasks, times.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizers/tokenizer.h"

namespace ingot {

struct SpeechTokens {
  int32_t start = 0, end = 0;  // <|startoftranscript|>, <|endoftext|>
  int32_t transcribe = -1, translate = -1;
  int32_t previous = -1;   // <|startofprev|>: what was said before follows
  int32_t no_speech = -1;  // <|nospeech|> or <|nocaptions|>
  int32_t no_times = 0;    // <|notimestamps|>
  int32_t first_time = 0;  // <|0.00|>; each further one is 20 ms later
  int n_times = 0;
  std::vector<std::pair<std::string_view, int32_t>> languages;  // codes, in the order of the tokens
  bool is_multilingual = false;  // otherwise the model transcribes English, and has no tokens for tasks

  bool is_time(int32_t token) const { return token >= first_time; }
  // The token of a language; nothing if the model lacks it. language: a code or a name, such as "de" or "german".
  std::optional<int32_t> language(std::string_view language) const;
  std::string_view code_of(int32_t language_token) const;  // "" if it is none
};

inline constexpr double kTimeStep = 0.02;  // seconds from one time token to the next

// Throws Error naming the file and the token that the tokenizer lacks. n_rows: of the encoder's output, one for each
// time token but the first.
SpeechTokens find_speech_tokens(const Tokenizer& tokenizer, bool is_multilingual, int n_vocab, int n_rows,
                                const std::string& source);

// Tokens that stand for sounds and signs rather than speech, such as brackets and musical notes, as OpenAI's code
// computes them; for checkpoints that do not list them.
std::vector<int32_t> non_speech_tokens(const Tokenizer& tokenizer, const SpeechTokens& tokens);

}  // namespace ingot
