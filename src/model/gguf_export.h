// A checkpoint of any kind, seen as the GGUF file that it could be: keys, and tensors under GGUF's names and in its
// layout. What the weights are written as is for model/quantize to say.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/gguf/writer.h"
#include "model/checkpoint.h"
#include "model/quant_mix.h"

namespace ingot {

struct ExportTensor {
  std::string name;              // GGUF's
  std::vector<uint64_t> shape;   // in GGUF's order: shape[0] is the row length
  uint32_t ggml_type = 0;        // as the source stores it, where GGUF has that type
  std::optional<Format> format;  // nothing: ingot does not compute with it, so that it can only be copied
  bool is_gguf_format = true;
  uint64_t n_bytes = 0;              // as stored
  std::vector<int32_t> row_order;    // the source's row (of a vector: element) for each; empty: as they are
  std::vector<int32_t> column_order; // likewise of each row's elements, [shape[0]]
  std::function<HostTensor()> open;  // rows in the source's order, [those that row_order names, shape[0]]
  std::function<void(const HostTensor&)> close;

  int64_t n_in() const { return static_cast<int64_t>(shape[0]); }
  int64_t n_rows() const;
  int64_t n_elements() const { return n_in() * n_rows(); }
};

struct GgufExport {
  std::string source;  // for messages, safe to print
  std::vector<ExportTensor> tensors;
  MixModel mix_model;
  std::function<void(GgufWriter&)> write_metadata;  // all keys but those that say how the weights are quantized
};

// The checkpoint stays open as long as the result lives. Throws Error naming what is missing, or what GGUF cannot say.
GgufExport gguf_export(std::shared_ptr<const Checkpoint> checkpoint);

}  // namespace ingot
