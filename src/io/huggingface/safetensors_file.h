// One safetensors file, parsed from its bytes: eight bytes of header length, a JSON header, then the tensors' data.
// Format: https://huggingface.co/docs/safetensors. As in the format's reference implementation, the tensors must cover
// the data without holes or overlaps, and a header has at most 100 MB. All values in the header are checked before use.
// The header is processed during parsing, so a hostile header needs no more memory than the described tensors. Most
// code uses Safetensors (io/huggingface/safetensors.h), which calls this parser.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quant/format.h"

namespace ingot {

struct SafeDtype {
  const char* name;
  uint32_t bits;                 // of an element
  std::optional<Format> format;  // nothing: ingot can list the type but not compute with it
};

// nullptr if the format has no such type.
const SafeDtype* safe_dtype(std::string_view name);

inline constexpr size_t kSafeMaxHeaderBytes = 100'000'000;
inline constexpr size_t kSafeMaxTensors = 1'000'000;
inline constexpr size_t kSafeMaxDims = 8;

struct SafeTensor {
  std::string name;
  const SafeDtype* dtype = nullptr;
  int n_dims = 0;  // 0: a scalar
  std::array<int64_t, kSafeMaxDims> shape{};
  uint64_t offset = 0;  // of the data, from the start of its file
  uint64_t n_bytes = 0;
  int shard = 0;  // index of its file in a sharded model

  std::span<const int64_t> dims() const { return {shape.data(), static_cast<size_t>(n_dims)}; }
  int64_t n_elements() const;
};

struct SafetensorsFile {
  std::vector<SafeTensor> tensors;                            // in the order of the header, names distinct
  std::vector<std::pair<std::string, std::string>> metadata;  // __metadata__
};

// `name` is for messages. Throws Error naming the file, the tensor, the field and the offset.
SafetensorsFile parse_safetensors_file(std::span<const uint8_t> bytes, const std::string& name);

}  // namespace ingot
