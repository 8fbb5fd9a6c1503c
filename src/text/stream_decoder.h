// Decodes tokens as a model draws them, in whole characters: the bytes of a character that is not complete yet wait.
#pragma once
#include <span>

#include "text/tokenizers/tokenizer.h"

namespace ingot {

struct StreamOptions {
  bool skip_special = true;
  std::span<const int32_t> shown_special =
      {};                       // sorted: which special tokens come all the same; must outlive the decoder
  bool replace_invalid = true;  // ill-formed UTF-8 becomes U+FFFD (WHATWG); otherwise the bytes come as they are
  // The token before the first one (the prompt's last), if there is one: after text, a SentencePiece model's leading
  // space is part of the answer; at the start of a text or after an added token it is not.
  std::optional<int32_t> previous = std::nullopt;
};

class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, StreamOptions options = {});

  // The text that is complete now: whole characters, perhaps none. At most 3 bytes are held back.
  std::string push(int32_t id);  // an id beyond the vocabulary is no text; throws Error for a negative one
  // What is held back, at the end of the answer.
  std::string flush();

 private:
  const Tokenizer& tokenizer_;
  StreamOptions options_;
  bool at_start_;
  std::string pending_;
};

}  // namespace ingot
