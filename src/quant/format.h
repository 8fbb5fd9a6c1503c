// The formats in which weights are stored. A format is one type in namespace quant (q4_k.h, for example) and one line
// in formats.def. Code that must be fast uses the type, through visit(); all other code uses the run-time facts,
// through info().
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "quant/formats.def"

namespace ingot {

enum class Format : uint8_t {
#define INGOT_FORMAT(name) name,
#include "quant/formats.def"
  kCount
};
inline constexpr int kFormatCount = static_cast<int>(Format::kCount);

struct FormatInfo {
  const char* name;                   // "Q4_K"
  std::optional<uint32_t> ggml_type;  // the id in GGUF files; none if GGUF lacks the format
  int block_size;                     // elements in a block
  int block_bytes;
  void (*decode)(const uint8_t* blocks, float* out, int64_t n_blocks);  // out: [n_blocks * block_size]

  // The codes, scales and minima of grouped.h. Dense formats and F8_E4M3 have no codes: unpack is null; group,
  // code_bits and levels are 0.
  void (*unpack)(const uint8_t* blocks, uint8_t* codes, float* scales, float* mins, int64_t n_blocks);
  // codes: [n_blocks * block_size]; scales, mins: [n_blocks * block_size / group]
  int code_bits;           // 4 or 8: the width in which a backend may keep the codes
  int levels;              // codes are 0 to levels - 1
  int group;               // elements that share a scale
  int run;                 // neighbouring groups that share one scale and minimum
  int zero;                // symmetric formats: mins are -zero * scale; other formats: 0
  bool has_min;            // mins are stored, not computed from the scales
  const int8_t* codebook;  // [16], or null: the code is its own value
  float scale_unit;        // of 256-element blocks: a scale is a small integer times scale_unit and the block's d
  const quant::ScaleField* scale_fields;
  int n_scale_fields;
  bool can_encode;  // encode_row() (quant/encode.h) can write the format
};

const FormatInfo& info(Format format);

// F8_E4M3 and F8_E4M3_32: blocks of a scale and 8-bit floats.
inline bool is_float8(const FormatInfo& format) { return format.unpack == nullptr && format.block_size > 1; }

std::optional<Format> format_from_ggml(uint32_t type);
std::optional<Format> format_from_name(std::string_view name);  // any case

// The name of a ggml type, for messages. Includes types that ingot cannot read. The names of types that ggml has
// removed end in "(removed)". Null if the id is unknown.
const char* ggml_type_name(uint32_t type);

// n_elements must be whole blocks.
size_t row_bytes(Format format, int64_t n_elements);
void decode_row(Format format, const void* row, float* out, int64_t n_elements);  // out: [n_elements]

// Calls f with a value of the format's type: visit(format, [&](auto t) { using T = decltype(t); ... T::decode(...); }).
template <class F>
decltype(auto) visit(Format format, F&& f) {
  switch (format) {
#define INGOT_FORMAT(name) \
  case Format::name:       \
    return std::forward<F>(f)(quant::name{});
#include "quant/formats.def"
    case Format::kCount:
      break;
  }
  detail::check_failed(__FILE__, __LINE__, "visit: no such format", "");
}

}  // namespace ingot
