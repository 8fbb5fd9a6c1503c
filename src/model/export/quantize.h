// Writes a checkpoint as a GGUF file. The weights are quantized by a mix or keep their format. Tensors are written one
// after another, so memory holds only one of them. All threads share the rows of a tensor. For `ingot quantize` and
// `ingot convert`.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "io/gguf/imatrix.h"
#include "model/export/gguf_export.h"

namespace ingot {

struct QuantizeOptions {
  const Mix* mix = nullptr;  // null: the stored formats; a format that GGUF lacks becomes F16
  std::optional<Format> layer_inputs;  // MixOptions
  std::optional<Format> output, embedding;
  const ImportanceMatrix* importance = nullptr;
  bool allow_requantize = false;  // false: weights that are already quantized are refused
  bool allow_decode = false;      // quantized weights may become F32, F16 or BF16
  int n_threads = 0;
  // Called with the bytes of the source that are done, and the total. If it throws, no file is written.
  std::function<void(size_t done, size_t total)> progress;
};

struct QuantizeReport {
  std::map<std::string, int> mix;  // number of tensors of each type
  int n_tensors = 0;
  int64_t n_weights = 0;
  uint64_t bytes_before = 0, bytes_after = 0;   // of all tensors
  std::vector<std::string> fallbacks;           // matrices whose rows are not whole blocks of the mix's format
  std::vector<std::string> without_importance;  // quantized matrices that the importance matrix lacks
};

// Throws Error for quantized weights without permission, an importance matrix of another model, values that are not
// finite or too large for the format, a full disk, and every error of gguf_export.
QuantizeReport write_gguf(const GgufExport& model, const QuantizeOptions& options, const std::string& path);

}  // namespace ingot
