#include "io/gguf/ggml_type.h"

#include "base/error.h"

namespace ingot {
namespace {

struct Size {
  uint32_t id;
  uint32_t block_size;
  uint32_t block_bytes;
};

// Types that are not for weights: integers, doubles, and ggml's formats for activations.
constexpr Size kSizes[] = {
    {9, 32, 40},     // Q8_1
    {15, 256, 292},  // Q8_K
    {24, 1, 1},      // I8
    {25, 1, 2},      // I16
    {26, 1, 4},      // I32
    {27, 1, 8},      // I64
    {28, 1, 8},      // F64
};

// The type that replaces a removed type. Most removed types were other layouts of these types; ggml now creates such
// layouts at load time.
const char* instead_of_removed(uint32_t id) {
  if (id == 4 || id == 5 || (id >= 31 && id <= 33)) return "Q4_0";
  return id >= 36 && id <= 38 ? "IQ4_NL" : nullptr;
}

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
  if (const char* instead = instead_of_removed(id))
    return fmt::format("{} ({}; use the model in {})", id, name, instead);
  return fmt::format("{} ({})", id, name != nullptr ? name : "unknown");
}

}  // namespace ingot
