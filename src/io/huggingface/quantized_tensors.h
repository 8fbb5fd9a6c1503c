// The matrices of a quantized checkpoint. At open, finds and checks the tensors that make up each matrix; on request,
// converts a matrix's rows to blocks of a Format (quantized_rows.cc). Knows the layouts (huggingface/quantization.h),
// not the matrices' roles. Used by model/weight_sources and `ingot inspect`.
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
  const SafeTensor* order = nullptr;  // group of each column, if the columns are not in group order
  const SafeTensor* global = nullptr;  // a factor or divisor of all scales (NVFP4)
  bool whole_codes = false;           // packed words hold whole codes, and possibly unused bits
  uint64_t n_bytes = 0;               // of all its tensors
  std::string type;                   // for people: "GPTQ 4-bit g128"

  int64_t group() const { return scheme.group > 0 ? scheme.group : n_in; }
  int64_t n_groups() const { return n_in / group(); }
};

// A matrix converted to rows of blocks: n_out * row_bytes(format, n_in) bytes.
struct GatheredMatrix {
  Format format = Format::F32;
  std::vector<uint64_t> data;

  const uint8_t* bytes() const { return reinterpret_cast<const uint8_t*>(data.data()); }
};

class QuantizedTensors {
 public:
  // Throws Error naming the module and the tensor if the tensor is missing, or has another type or shape than the
  // scheme requires. `source` is the model's name, for messages. `files` must outlive the object.
  QuantizedTensors(const Safetensors& files, const std::optional<HfQuantization>& quantization, std::string source);

  const QuantizedMatrix* find(std::string_view module) const;
  std::span<const QuantizedMatrix> matrices() const { return matrices_; }
  // True if a tensor is part of a matrix, or belongs to a matrix but is not needed (the scale of its activations).
  bool is_part(const SafeTensor& tensor) const;

  // Converts a matrix to the block format that represents it exactly; to F16 if the columns are not in group order; to
  // F32 if rows or groups are not whole blocks. Throws Error if the values make no sense.
  GatheredMatrix gather(const QuantizedMatrix& matrix) const;
  static Format format_of(const QuantizedMatrix& matrix);  // the format that gather() gives

 private:
  class Finder;

  const Safetensors& files_;
  std::string source_;
  std::vector<QuantizedMatrix> matrices_;  // by module
  std::set<std::string_view> parts_;       // names of tensors that belong to a matrix
};

}  // namespace ingot
