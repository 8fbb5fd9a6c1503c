// The tokenizer of a GGUF file (tokenizer.ggml.*), in the form that Tokenizer::create takes.
#pragma once
#include "io/gguf/gguf.h"
#include "text/tokenizers/tokenizer_spec.h"

namespace ingot {

// The result has views of the file, which must stay open while the tokenizer is made. Throws Error if a key is missing
// or of another type. Tokenizer::create checks whether the values fit together.
TokenizerSpec tokenizer_spec(const Gguf& file);

}  // namespace ingot
