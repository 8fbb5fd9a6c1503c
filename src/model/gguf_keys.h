// The keys of a GGUF file that say what model it is, as llama.cpp's converter writes them, from a checkpoint of another
// kind.
#pragma once
#include "io/gguf/writer.h"
#include "model/checkpoint.h"

namespace ingot {

// general.*, the architecture's own keys, the tokenizer and the chat template. Throws Error for what GGUF cannot say.
void write_gguf_keys(const Checkpoint& checkpoint, const Config& config, GgufWriter& writer);

// The tokenizer alone. n_rows: of the embedding.
void write_tokenizer_keys(const Checkpoint& checkpoint, int n_rows, GgufWriter& writer);

}  // namespace ingot
