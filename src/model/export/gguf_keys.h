// Writes the keys of a GGUF file that describe the model, as llama.cpp's converter does, from a checkpoint of another
// kind.
#pragma once
#include "io/gguf/writer.h"
#include "model/files/checkpoint.h"

namespace ingot {

// Writes general.*, the architecture's keys, the tokenizer and the chat template. Throws Error for what GGUF cannot
// express.
void write_gguf_keys(const Checkpoint& checkpoint, const Config& config, GgufWriter& writer);

}  // namespace ingot
