// The tokenizer that a GGUF file describes (tokenizer.ggml.*), as Tokenizer::create wants it.
#pragma once
#include "io/gguf/gguf.h"
#include "text/tokenizers/tokenizer_spec.h"

namespace ingot {

// Views of the file, which must stay open while the tokenizer is made. Throws Error for keys that are missing or of
// another type; whether their values make sense together is for Tokenizer::create to say.
TokenizerSpec tokenizer_spec(const Gguf& file);

}  // namespace ingot
