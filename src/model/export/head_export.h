// The layers after pooling of an embedding model or a cross-encoder as tensors and keys of a GGUF file, for
// gguf_export. Names and layout are those of llama.cpp's converter, with one addition: a BERT's pooler, which that
// converter drops, is written as `cls`.
#pragma once
#include <vector>

#include "model/export/gguf_export.h"

namespace ingot {

// A tensor of numbers that are in memory.
ExportTensor computed_tensor(const std::string& name, std::vector<uint64_t> shape, std::vector<float> values);

// head_export() returns the layers after pooling: a classifier, or dense layers; empty for models that generate text.
// write_pooling_keys() writes how an embedding model pools. `arch` is GGUF's name of the architecture. Both throw Error
// naming what GGUF cannot express.
std::vector<ExportTensor> head_export(const Checkpoint& checkpoint, WeightSource& source, int dim, bool is_encoder);
void write_pooling_keys(const Checkpoint& checkpoint, const std::string& arch, GgufWriter& writer);

}  // namespace ingot
