// The matrices of a quantized checkpoint. The constructor finds and checks the tensors of each matrix. gather()
// converts a matrix to blocks of a Format (quantized_rows.cc). The code depends on the layouts
// (huggingface/quantization.h), not on the roles of the matrices. Used by model/weight_sources and `ingot inspect`.
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
  bool whole_codes = false;           // packed words hold only whole codes, some bits may be unused
  uint64_t n_bytes = 0;               // of all its tensors
  std::string type;                   // for display: "GPTQ 4-bit g128"

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
  // True if a tensor belongs to a matrix, even if the tensor is not needed (a scale for activations).
  bool is_part(const SafeTensor& tensor) const;

  // Converts a matrix to the block format that represents the matrix exactly. The format is F16 if the columns are not
  // in group order, and F32 if rows or groups are not whole blocks. Throws Error if scales or zero points are invalid.
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
