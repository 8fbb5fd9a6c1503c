// Reads the tokenizer of a GGUF file (tokenizer.ggml.*) as a TokenizerSpec for Tokenizer::create.
#pragma once
#include "io/gguf/gguf.h"
#include "text/tokenizers/tokenizer_spec.h"

namespace ingot {

// The result has views of the file, which must stay open until the tokenizer has been created. Throws Error if a key is
// missing or of another type. Tokenizer::create checks whether the values are consistent.
TokenizerSpec tokenizer_spec(const Gguf& file);

}  // namespace ingot
