// Writes a checkpoint as a GGUF file, its weights quantized by a mix or as they are. Tensor by tensor, so that memory
// holds one at a time, rows of it on all threads. For `ingot quantize` and `ingot convert`.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "io/gguf/imatrix.h"
#include "model/gguf_export.h"

namespace ingot {

struct QuantizeOptions {
  const Mix* mix = nullptr;  // null: as the source stores them; what GGUF has no type for becomes F16
  std::optional<Format> output, embedding;
  const ImportanceMatrix* importance = nullptr;
  bool allow_requantize = false;  // without it, weights that are quantized already are refused
  bool allow_decode = false;      // but may become F32, F16 or BF16
  int n_threads = 0;
  // Bytes of the source that are done, and all of them. It may throw: then nothing is written.
  std::function<void(size_t done, size_t total)> progress;
};

struct QuantizeReport {
  std::map<std::string, int> mix;  // tensors by type
  int n_tensors = 0;
  int64_t n_weights = 0;
  uint64_t bytes_before = 0, bytes_after = 0;  // of all tensors
  std::vector<std::string> fallbacks;  // matrices whose rows are no whole blocks of the type that the mix has for them
  std::vector<std::string> without_importance;  // quantized matrices that the importance matrix says nothing about
};

// Throws Error: quantized weights without leave, an importance matrix of another model, values that the type cannot
// hold or that are no numbers, a disk that is full; and what gguf_export throws.
QuantizeReport write_gguf(const GgufExport& model, const QuantizeOptions& options, const std::string& path);

}  // namespace ingot
