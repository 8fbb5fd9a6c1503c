// One metadata value, as a view of its GGUF bytes. Values are decoded and copied only on request: parsing an array of
// 600,000 merges walks over the lengths once and allocates nothing. A value is a scalar, a string, an array of these,
// or an array of arrays (two levels at most).
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/reader.h"

namespace ingot {

// The enumerators' values are those of the file format.
enum class ValueType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };
inline constexpr uint32_t kNumValueTypes = 13;
inline constexpr int kMaxArrayDepth = 2;

const char* value_type_name(ValueType type);  // "u32", "str", "arr", ...

struct Value {
  ValueType type = ValueType::kU8;
  ValueType element = ValueType::kU8;  // of an array
  uint64_t count = 1;                  // of an array
  std::span<const uint8_t> bytes;      // the scalar, the text, or the elements as stored (unaligned)

  bool is_array() const { return type == ValueType::kArray; }
  std::string type_name() const;  // "u32", or "[str]" for an array of strings

  // The value as T (bool, a 32 or 64 bit integer, float, double or string_view); nothing if the kind differs or the
  // value does not fit. Any integer type converts to any integer T; f32 and f64 convert to float and double. A bool is
  // not an integer.
  template <class T>
  std::optional<T> as() const;

  // The first `max` elements of an array, as views.
  std::vector<Value> elements(size_t max = std::numeric_limits<size_t>::max()) const;
};

// Reads one value of this type, checking every count and length against the remaining bytes. Throws Error.
Value read_value(Reader& reader, ValueType type, int depth = 0);
ValueType read_value_type(Reader& reader, const char* field);

// For display: strings quoted, control bytes escaped, long text cut, long arrays as `[151936 x str] "!", "#", ...`.
std::string render(const Value& value, size_t max_items = 8);

}  // namespace ingot
