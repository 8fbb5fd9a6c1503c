// Writes a tokenizer's tokenizer.ggml.* keys, from a specification read from a file of another format.
#pragma once
#include "io/gguf/writer.h"
#include "text/tokenizers/tokenizer_spec.h"

namespace ingot {

// n_rows: rows of the embedding; ids without a token become unused tokens. GGUF cannot express every tokenizer. Throws
// Error naming the feature if texts would get other tokens (for example, expressions that no tokenizer.ggml.pre has).
// Only warns if this is rare.
void write_tokenizer(const TokenizerSpec& spec, int n_rows, GgufWriter& writer);

}  // namespace ingot
