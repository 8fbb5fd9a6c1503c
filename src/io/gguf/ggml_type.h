// The tensor types of the GGUF file format: what a block of each holds and takes. Those that ingot computes with are
// described in quant/format.h; the sizes of the others are here, so that any valid file opens for `ingot inspect`.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "quant/format.h"

namespace ingot {

struct GgmlType {
  const char* name;
  uint32_t block_size;  // elements
  uint32_t block_bytes;
  std::optional<Format> format;  // nothing: can be listed and copied, not computed with
};

// Nothing when the number is unknown or was removed from the format.
std::optional<GgmlType> ggml_type(uint32_t id);

// For messages, also for numbers that ggml_type refuses: "12 (Q4_K)", "77 (unknown)", and with what to do
// "31 (Q4_0_4_4 (removed); use the model in Q4_0)".
std::string describe_ggml_type(uint32_t id);

}  // namespace ingot
