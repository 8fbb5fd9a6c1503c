// The tensor types of the GGUF file format: the elements and bytes of a block. quant/format.h describes the types that
// ingot computes with. This file adds the sizes of the other types, so `ingot inspect` can open any valid file.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "quant/format.h"

namespace ingot {

struct GgmlType {
  const char* name;
  uint32_t block_size;  // elements in a block
  uint32_t block_bytes;
  std::optional<Format> format;  // nothing: ingot can list and copy the type, but not compute with it
};

// Nothing if the number is unknown or was removed from the format.
std::optional<GgmlType> ggml_type(uint32_t id);

// A description of any type for messages: "12 (Q4_K)", "77 (unknown)", "31 (Q4_0_4_4 (removed); use the model in
// Q4_0)".
std::string describe_ggml_type(uint32_t id);

}  // namespace ingot
