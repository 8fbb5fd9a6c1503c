#include "io/ggml_type.h"

#include "base/error.h"

namespace ingot {
namespace {

struct Size {
  uint32_t id;
  uint32_t block_size;
  uint32_t block_bytes;
};

// Block sizes of the types that have no Format yet; a type that gains one leaves this list.
constexpr Size kSizes[] = {
    {9, 32, 40},     // Q8_1
    {15, 256, 292},  // Q8_K
    {16, 256, 66},   // IQ2_XXS
    {17, 256, 74},   // IQ2_XS
    {18, 256, 98},   // IQ3_XXS
    {19, 256, 50},   // IQ1_S
    {21, 256, 110},  // IQ3_S
    {22, 256, 82},   // IQ2_S
    {24, 1, 1},      // I8
    {25, 1, 2},      // I16
    {26, 1, 4},      // I32
    {27, 1, 8},      // I64
    {28, 1, 8},      // F64
    {29, 256, 56},   // IQ1_M
    {34, 256, 54},   // TQ1_0
    {35, 256, 66},   // TQ2_0
    {40, 64, 36},    // NVFP4
    {41, 128, 18},   // Q1_0
    {42, 64, 18},    // Q2_0
};

}  // namespace

std::optional<GgmlType> ggml_type(uint32_t id) {
  if (const auto format = format_from_ggml(id)) {
    const FormatInfo& f = info(*format);
    return GgmlType{f.name, static_cast<uint32_t>(f.block_size), static_cast<uint32_t>(f.block_bytes), format};
  }
  for (const Size& size : kSizes)
    if (size.id == id) return GgmlType{ggml_type_name(id), size.block_size, size.block_bytes, std::nullopt};
  return std::nullopt;
}

std::string describe_ggml_type(uint32_t id) {
  const char* name = ggml_type_name(id);
  return fmt::format("{} ({})", id, name != nullptr ? name : "unknown");
}

}  // namespace ingot
