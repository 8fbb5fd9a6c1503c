// Presents a checkpoint of any kind as a GGUF file: its keys, and its tensors with GGUF's names and layout.
// model/quantize chooses the format in which the weights are written.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/gguf/writer.h"
#include "model/files/checkpoint.h"
#include "model/files/quant_mix.h"

namespace ingot {

struct ExportTensor {
  std::string name;              // in GGUF
  std::vector<uint64_t> shape;   // in GGUF's order: shape[0] is the row length
  uint32_t ggml_type = 0;        // the stored type, if GGUF has that type
  std::optional<Format> format;  // nothing: ingot cannot compute with the type and can only copy the tensor
  bool is_gguf_format = true;
  uint64_t n_bytes = 0;              // as stored
  std::vector<int32_t> row_order;    // source row of each row (for vectors: element); empty: same order
  std::vector<int32_t> column_order; // the same for the elements of a row: [shape[0]]; empty: same order
  std::vector<float> row_factors;    // of each source row; empty: none
  std::function<HostTensor()> open;  // rows in the source's order: [rows that row_order indexes, shape[0]]
  std::function<void(const HostTensor&)> close;

  int64_t n_in() const { return static_cast<int64_t>(shape[0]); }
  int64_t n_rows() const;
  int64_t n_elements() const { return n_in() * n_rows(); }
};

struct GgufExport {
  std::string source;  // for messages, printable
  bool is_converted = false;  // from a directory, so no tensor has to stay as it is stored
  std::vector<ExportTensor> tensors;
  MixModel mix_model;
  std::function<void(GgufWriter&)> write_metadata;  // all keys except those about quantization
};

// The checkpoint stays open while the result exists. Throws Error naming what is missing, or what GGUF cannot express.
GgufExport gguf_export(std::shared_ptr<const Checkpoint> checkpoint);

}  // namespace ingot
