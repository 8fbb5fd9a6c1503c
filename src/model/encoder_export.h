// Embedding models as GGUF files, for gguf_export: an encoder's directory, and the layers after pooling of any
// directory of sentence-transformers. Names and layout are those of llama.cpp's converter, with one addition: a BERT's
// pooler, which that converter drops, is written as `cls`.
#pragma once
#include <memory>
#include <vector>

#include "model/encoder_config.h"
#include "model/gguf_export.h"

namespace ingot {

// Throws Error naming what is missing, or what GGUF cannot express.
GgufExport encoder_export(std::shared_ptr<const Checkpoint> checkpoint, const EncoderConfig& config);

// head_export() gives the layers after pooling: a classifier, or dense layers; empty for models that generate text.
// write_pooling_keys() writes how an embedding model pools. `arch` is GGUF's name of the architecture.
std::vector<ExportTensor> head_export(const Checkpoint& checkpoint, WeightSource& source, int dim, bool is_encoder);
void write_pooling_keys(const Checkpoint& checkpoint, const std::string& arch, GgufWriter& writer);

}  // namespace ingot
