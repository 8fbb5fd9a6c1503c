// Embedding models as GGUF files, for gguf_export: an encoder's directory, and what comes after pooling in any
// directory of sentence-transformers. Named and laid out as llama.cpp's converter does, but that a BERT's pooler, which
// that drops, is `cls`.
#pragma once
#include <memory>
#include <vector>

#include "model/encoder_config.h"
#include "model/gguf_export.h"

namespace ingot {

// Throws Error naming what is missing, or what GGUF cannot say.
GgufExport encoder_export(std::shared_ptr<const Checkpoint> checkpoint, const EncoderConfig& config);

// What comes after pooling: a classifier, or dense layers; nothing of models that write text. And how an embedding
// model pools. `arch` is GGUF's name of it.
std::vector<ExportTensor> head_export(const Checkpoint& checkpoint, WeightSource& source, int dim, bool is_encoder);
void write_pooling_keys(const Checkpoint& checkpoint, const std::string& arch, GgufWriter& writer);

}  // namespace ingot
