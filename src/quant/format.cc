// The run-time descriptions of the formats: one FormatInfo for each type in formats.def, and the names of all ggml
// types.
#include "quant/format.h"

#include <algorithm>
#include <array>

#include "base/ascii.h"

namespace ingot {
namespace {

template <class T>
concept IsGrouped = requires {
  T::group;
};

template <class T>
void decode_blocks(const uint8_t* blocks, float* out, int64_t n_blocks) {
  for (int64_t i = 0; i < n_blocks; ++i) T::decode(blocks + i * T::block_bytes, out + i * T::block_size);
}

template <class T>
void unpack_blocks(const uint8_t* blocks, uint8_t* codes, float* scales, float* mins, int64_t n_blocks) {
  constexpr int kGroups = T::block_size / T::group;
  for (int64_t i = 0; i < n_blocks; ++i) {
    T::unpack(blocks + i * T::block_bytes, codes + i * T::block_size, scales + i * kGroups, mins + i * kGroups);
  }
}

template <class T>
constexpr FormatInfo describe() {
  FormatInfo f{};
  f.name = T::name;
  if constexpr (requires { T::ggml_type; }) f.ggml_type = T::ggml_type;
  f.block_size = T::block_size;
  f.block_bytes = T::block_bytes;
  f.decode = decode_blocks<T>;
  f.can_encode = requires { &T::encode; }
  || requires { &T::pack; };
  if constexpr (IsGrouped<T>) {
    static_assert(T::block_size % T::group == 0 && T::block_size <= 256);
    static_assert(T::code_bits == 4 || T::code_bits == 8);
    static_assert((T::zero & (T::zero - 1)) == 0, "-zero * scale must be exact");
    f.unpack = unpack_blocks<T>;
    f.code_bits = T::code_bits;
    f.levels = T::levels;
    f.group = T::group;
    f.run = T::run;
    f.zero = T::zero;
    f.has_min = T::has_min;
    f.scale_unit = T::scale_unit;
    if constexpr (quant::HasCodebook<T>) f.codebook = T::codebook;
  }
  if constexpr (requires { T::scale_fields; }) {
    f.scale_fields = T::scale_fields;
    f.n_scale_fields = static_cast<int>(std::size(T::scale_fields));
  }
  return f;
}

constexpr std::array<FormatInfo, kFormatCount> kFormats = {
#define INGOT_FORMAT(name) describe<quant::name>(),
#include "quant/formats.def"
};

struct TypeName {
  uint32_t type;
  const char* name;
};

// ggml's ids that ingot does not read.
constexpr TypeName kUnsupported[] = {
    {4, "Q4_2 (removed)"},
    {5, "Q4_3 (removed)"},
    {9, "Q8_1"},
    {15, "Q8_K"},
    {24, "I8"},
    {25, "I16"},
    {26, "I32"},
    {27, "I64"},
    {28, "F64"},
    {31, "Q4_0_4_4 (removed)"},
    {32, "Q4_0_4_8 (removed)"},
    {33, "Q4_0_8_8 (removed)"},
    {36, "IQ4_NL_4_4 (removed)"},
    {37, "IQ4_NL_4_8 (removed)"},
    {38, "IQ4_NL_8_8 (removed)"},
};
static_assert(std::ranges::none_of(kUnsupported,
                                   [](const TypeName& t) {
                                     return std::ranges::find(kFormats, t.type, &FormatInfo::ggml_type) !=
                                            kFormats.end();
                                   }),
              "formats.def has this type: take it out of kUnsupported");

template <class Predicate>
std::optional<Format> find_format(Predicate matches) {
  const auto it = std::find_if(kFormats.begin(), kFormats.end(), matches);
  if (it == kFormats.end()) return std::nullopt;
  return static_cast<Format>(it - kFormats.begin());
}

}  // namespace

const FormatInfo& info(Format format) {
  CHECK_LT(static_cast<int>(format), kFormatCount);
  return kFormats[static_cast<size_t>(format)];
}

std::optional<Format> format_from_ggml(uint32_t type) {
  return find_format([&](const FormatInfo& f) { return f.ggml_type == type; });
}

std::optional<Format> format_from_name(std::string_view name) {
  return find_format([wanted = lower(name)](const FormatInfo& f) { return lower(f.name) == wanted; });
}

const char* ggml_type_name(uint32_t type) {
  if (const auto format = format_from_ggml(type)) return info(*format).name;
  const auto it = std::ranges::find(kUnsupported, type, &TypeName::type);
  return it == std::end(kUnsupported) ? nullptr : it->name;
}

size_t row_bytes(Format format, int64_t n_elements) {
  const FormatInfo& f = info(format);
  CHECK_GE(n_elements, 0);
  CHECK_EQ(n_elements % f.block_size, 0);
  return static_cast<size_t>(n_elements / f.block_size) * static_cast<size_t>(f.block_bytes);
}

void decode_row(Format format, const void* row, float* out, int64_t n_elements) {
  const FormatInfo& f = info(format);
  CHECK_EQ(n_elements % f.block_size, 0);
  f.decode(static_cast<const uint8_t*>(row), out, n_elements / f.block_size);
}

}  // namespace ingot
