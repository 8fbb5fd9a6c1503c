// A tokenizer as GGUF keeps it: the tokenizer.ggml.* keys from a specification that came from another kind of file.
#pragma once
#include "io/gguf/writer.h"
#include "text/tokenizers/tokenizer_spec.h"

namespace ingot {

// n_rows: of the embedding; ids that no token has become unused tokens. What GGUF cannot say is refused by name where
// it would change which tokens a text has (expressions that no tokenizer.ggml.pre stands for), or warned about where
// that is rare. Throws Error.
void write_tokenizer(const TokenizerSpec& spec, int n_rows, GgufWriter& writer);

}  // namespace ingot
