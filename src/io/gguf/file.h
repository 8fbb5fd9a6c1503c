// One GGUF file (a whole model, or one part of a split one), parsed from its bytes. Versions 2 and 3, little-endian.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Everything that the file claims is checked against
// the bytes that are there before anything is allocated or looked at. Called by Gguf (gguf.h), which is what others
// use.
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
  std::optional<Format> format;              // nothing: a type that ingot can list but not compute with
  int n_dims = 1;                            // 1 to 4
  std::array<int64_t, 4> shape{1, 1, 1, 1};  // in file order: shape[0] is the row length; 1 after n_dims
  uint64_t offset = 0;                       // of the data, from the start of its file
  uint64_t n_bytes = 0;
  int shard = 0;  // which file of a split model

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

// Why this may not be the name of a key or tensor: nullptr when it may.
const char* gguf_name_fault(std::string_view name, size_t max_bytes);
// A power of two up to kGgufMaxAlignment.
bool is_gguf_alignment(uint32_t alignment);
// The bytes that a tensor takes. Throws Error (without naming it) for a type, dimension or product that cannot be.
uint64_t gguf_tensor_bytes(uint32_t ggml_type, std::span<const uint64_t> dims);

struct GgufFile {
  uint32_t version = 0;
  uint32_t alignment = kGgufDefaultAlignment;
  Metadata metadata;
  std::vector<TensorInfo> tensors;    // in file order, names distinct, ranges inside the file and disjoint
  std::vector<std::string> warnings;  // what is odd but harmless: bytes that belong to no tensor
};

// Views of `bytes`, which must outlive the result; `name` is for messages. Throws Error.
GgufFile parse_gguf_file(std::span<const uint8_t> bytes, const std::string& name);

}  // namespace ingot
