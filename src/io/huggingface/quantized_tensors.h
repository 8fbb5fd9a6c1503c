// The matrices of a quantized checkpoint: which tensors make up each, found and checked when the checkpoint is opened,
// and their rows gathered into blocks of a Format when they are wanted (quantized_rows.cc). Knows layouts
// (huggingface/quantization.h), not what the matrices are for. Used by model/weight_sources and `ingot inspect`.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "io/huggingface/quantization.h"
#include "io/huggingface/safetensors.h"

namespace ingot {

struct QuantizedMatrix {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  QuantScheme scheme;
  int64_t n_out = 0, n_in = 0;
  const SafeTensor* codes = nullptr;
  const SafeTensor* scales = nullptr;
  const SafeTensor* zeros = nullptr;  // zero points, or MLX's biases; null: symmetric
  const SafeTensor* order = nullptr;  // the group of each column, where it is not by their order
  const SafeTensor* global = nullptr;  // what multiplies or divides all scales (NVFP4)
  bool whole_codes = false;           // packed words hold whole codes, and perhaps bits that mean nothing
  uint64_t n_bytes = 0;               // of all its tensors
  std::string type;                   // for people: "GPTQ 4-bit g128"

  int64_t group() const { return scheme.group > 0 ? scheme.group : n_in; }
  int64_t n_groups() const { return n_in / group(); }
};

// Rows of blocks: n_out * row_bytes(format, n_in) bytes.
struct GatheredMatrix {
  Format format = Format::F32;
  std::vector<uint64_t> data;

  const uint8_t* bytes() const { return reinterpret_cast<const uint8_t*>(data.data()); }
};

class QuantizedTensors {
 public:
  // Throws Error naming the module and the tensor that is missing, or has another type or shape than the scheme says.
  // `source` is the model's name, for messages. `files` must outlive this.
  QuantizedTensors(const Safetensors& files, const std::optional<HfQuantization>& quantization, std::string source);

  const QuantizedMatrix* find(std::string_view module) const;
  std::span<const QuantizedMatrix> matrices() const { return matrices_; }
  // Whether a tensor is part of a matrix, or says something about one that is not needed (the scale of its
  // activations).
  bool is_part(const SafeTensor& tensor) const;

  // The matrix in the block format that holds it exactly; where columns are in no order of groups, in F16; where rows
  // or groups are no whole blocks, in F32. Throws Error for numbers that make no sense.
  GatheredMatrix gather(const QuantizedMatrix& matrix) const;
  static Format format_of(const QuantizedMatrix& matrix);  // that gather() will choose

 private:
  class Finder;

  const Safetensors& files_;
  std::string source_;
  std::vector<QuantizedMatrix> matrices_;  // by module
  std::set<std::string_view> parts_;       // names of tensors
};

}  // namespace ingot
