// Decodes tokens to text while the model generates them. The output contains only whole characters; the bytes of an
// incomplete character are held back.
#pragma once
#include <span>

#include "text/tokenizers/tokenizer.h"

namespace ingot {

struct StreamOptions {
  bool skip_special = true;
  std::span<const int32_t> shown_special =
      {};                       // sorted: special tokens shown despite skip_special; must outlive the decoder
  bool replace_invalid = true;  // ill-formed UTF-8 becomes U+FFFD (WHATWG); otherwise its bytes stay unchanged
  // The token before the first token (the prompt's last token), if there is one. After text, a SentencePiece model's
  // leading space is part of the answer; at the start of a text or after an added token it is not.
  std::optional<int32_t> previous = std::nullopt;
};

class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, StreamOptions options = {});

  // Returns the text that is complete now: whole characters, or nothing. At most 3 bytes are held back.
  std::string push(int32_t id);  // an id beyond the vocabulary has no text; throws Error for a negative id
  // Returns the bytes that were held back, at the end of the answer.
  std::string flush();

 private:
  const Tokenizer& tokenizer_;
  StreamOptions options_;
  bool at_start_;
  std::string pending_;
};

}  // namespace ingot
