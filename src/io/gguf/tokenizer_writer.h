// Writes a tokenizer's tokenizer.ggml.* keys, from a specification that was read from another kind of file.
#pragma once
#include "io/gguf/writer.h"
#include "text/tokenizers/tokenizer_spec.h"

namespace ingot {

// n_rows: rows of the embedding; ids without a token become unused tokens. Throws Error, by name, for what GGUF cannot
// express if it would change the tokens of a text (expressions that no tokenizer.ggml.pre has). Warns if that happens
// only rarely.
void write_tokenizer(const TokenizerSpec& spec, int n_rows, GgufWriter& writer);

}  // namespace ingot
