// One GGUF file (a whole model, or one part of a split model), parsed from its bytes. Versions 2 and 3, little-endian.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Every count, size and offset is checked against
// the file's size before memory is allocated or data is read. Most code uses Gguf (gguf.h), which calls this parser.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/metadata.h"
#include "quant/format.h"

namespace ingot {

struct TensorInfo {
  std::string_view name;
  uint32_t ggml_type = 0;
  std::optional<Format> format;              // nothing: ingot can list the type but not compute with it
  int n_dims = 1;                            // 1 to 4
  std::array<int64_t, 4> shape{1, 1, 1, 1};  // in file order: shape[0] is the row length; 1 from n_dims on
  uint64_t offset = 0;                       // of the data, from the start of its file
  uint64_t n_bytes = 0;
  int shard = 0;  // index of its file in a split model

  int64_t n_elements() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
  std::span<const int64_t> dims() const { return {shape.data(), static_cast<size_t>(n_dims)}; }
};

inline constexpr const char* kGgufAlignmentKey = "general.alignment";
inline constexpr uint32_t kGgufDefaultAlignment = 32;
inline constexpr uint32_t kGgufMaxAlignment = 1 << 20;
inline constexpr uint64_t kGgufMaxKeys = 65536;
inline constexpr uint64_t kGgufMaxTensors = 65536;
inline constexpr size_t kGgufMaxKeyBytes = 65535;
inline constexpr size_t kGgufMaxTensorName = 63;
inline constexpr int kGgufMaxDims = 4;

// The reason why the name is not allowed for a key or tensor; nullptr if the name is allowed.
const char* gguf_name_fault(std::string_view name, size_t max_bytes);
// True for a power of two up to kGgufMaxAlignment.
bool is_gguf_alignment(uint32_t alignment);
// The size of a tensor in bytes. Throws Error (without the tensor's name) if the type or a dimension is invalid, or if
// the size overflows.
uint64_t gguf_tensor_bytes(uint32_t ggml_type, std::span<const uint64_t> dims);

struct GgufFile {
  uint32_t version = 0;
  uint32_t alignment = kGgufDefaultAlignment;
  Metadata metadata;
  std::vector<TensorInfo> tensors;    // in file order, names distinct, ranges inside the file and disjoint
  std::vector<std::string> warnings;  // harmless oddities: bytes that belong to no tensor
};

// `bytes` must outlive the result, which has views of them. `name` is for messages. Throws Error.
GgufFile parse_gguf_file(std::span<const uint8_t> bytes, const std::string& name);

}  // namespace ingot
